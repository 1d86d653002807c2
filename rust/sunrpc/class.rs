// SPDX-License-Identifier: GPL-2.0

//! The transport classes of `rpc_xprt`s, and the setup of a transport.

use super::{
    address,
    handle::XprtHandle,
    ops::Ops,
    svc,
    transport::{
        CallbackTransport,
        ConnectingTransport,
        Transport, //
    },
    tunables, //
};
use crate::kext::prelude::*;
use crate::{
    kext::{
        barrier::smp_mb,
        module_ref::ModuleRef,
        time::HZ, //
    },
    sys, //
};
use core::{
    mem,
    ptr, //
};
use kernel::types::ScopeGuard;

/// Time that an RPC waits for its Reply, and a task for a port lookup or a connection, in jiffies.
const TIMEOUT: usize = 60 * HZ;

/// Time that an unused connection is kept, in jiffies.
const IDLE: usize = 5 * 60 * HZ;

/// The timeouts of a transport until they are changed (`set_connect_timeout`). They are static,
/// because the clients of a transport keep pointers to them.
static DEFAULT_TIMEOUT: sys::rpc_timeout = sys::rpc_timeout {
    to_initval: TIMEOUT,
    to_maxval: TIMEOUT,
    to_increment: 0,
    to_retries: 0,
    to_exponential: 0,
};

/// Makes a transport of the client. This is the `setup` operation of its class.
///
/// # Safety
///
/// `args` is valid, and so are its `dstaddr` (for `addrlen` octets) and its `net`.
unsafe extern "C" fn setup_callback<T: ConnectingTransport>(
    args: *mut sys::xprt_create,
) -> *mut sys::rpc_xprt {
    // SAFETY: The caller guarantees that `args`, its address and its namespace are valid.
    match unsafe { setup(&*args, tunables::slot_table_entries(), T::setup) } {
        Ok(xprt) => xprt.as_ptr(),
        Err(error) => error.to_ptr(),
    }
}

/// Makes a transport for Calls to a client. This is the `setup` operation of its class.
///
/// # Safety
///
/// `args` is valid, and so are its `dstaddr` (for `addrlen` octets) and its `net`. The caller has a
/// reference to its `bc_xprt`, if that is not null.
pub(super) unsafe extern "C" fn callback_setup_callback<T: CallbackTransport>(
    args: *mut sys::xprt_create,
) -> *mut sys::rpc_xprt {
    // SAFETY: The caller guarantees that `args`, its address and its namespace are valid, and that
    // it has a reference to `bc_xprt`.
    match unsafe { callback_setup::<T>(&*args) } {
        Ok(xprt) => xprt.as_ptr(),
        Err(error) => error.to_ptr(),
    }
}

/// Makes a transport for Calls to a client.
///
/// # Safety
///
/// `dstaddr` of `args` is valid for `addrlen` octets, and `net` is valid. The caller has a
/// reference to `bc_xprt`, if that is not null.
unsafe fn callback_setup<T: CallbackTransport>(
    args: &sys::xprt_create,
) -> Result<NonNull<sys::rpc_xprt>> {
    // SAFETY: The caller has a reference to `bc_xprt`, so it is valid unless it is null.
    let connection = unsafe { svc::connection::<T::Connection>(args.bc_xprt) }.ok_or(EINVAL)?;
    let mut known = None;
    let make = |xprt| {
        let (state, is_known) = T::setup(xprt, &connection)?;
        known = is_known.then(|| state.clone());
        Ok(state)
    };
    // SAFETY: The caller guarantees that address and namespace are valid.
    let made = unsafe { setup(args, T::SLOTS, make) }?;
    let xprt = made.as_ptr();
    // SAFETY: Only this function knows the new transport until it is in `xpt_bc_xprt`, and
    // `bc_xprt` is valid, as `connection` has found. The server's transport gets a reference to the
    // new one, and holds it until it is freed itself.
    unsafe {
        (*xprt).xprt_class = &raw const sys::rpcrdma_class_backchannel;
        // The transport is connected for as long as it lives, and the server's transport decides
        // how long that is. So nothing times out.
        (*xprt).bind_timeout = 0;
        (*xprt).idle_timeout = 0;
        sys::xprt_set_bound(xprt);
        sys::xprt_set_connected(xprt);
        let Some(state) = known else {
            // It calls nobody, so the server's transport has nothing to do with it.
            return Ok(made);
        };
        (*xprt).bc_xprt = args.bc_xprt;
        sys::xprt_get(xprt);
        (*args.bc_xprt).xpt_bc_xprt = xprt;
        // SUNRPC marks the server's transport as dead first, and then closes ours if it finds it.
        // So with the barrier either SUNRPC finds the new transport, or this sees the mark.
        smp_mb();
        if svc::is_dead(args.bc_xprt) {
            Ops::<T>::close_callback(xprt);
        }
        // The device may have gone without SUNRPC, so before the transport was known or connected.
        T::published(&state);
    }
    Ok(made)
}

/// Makes a transport with `slots` slots, whose state `make` returns.
///
/// # Safety
///
/// `dstaddr` of `args` is valid for `addrlen` octets, and `net` is valid.
unsafe fn setup<T: Transport>(
    args: &sys::xprt_create,
    slots: u32,
    make: impl FnOnce(XprtHandle) -> Result<Arc<T>>,
) -> Result<NonNull<sys::rpc_xprt>> {
    if args.addrlen > mem::size_of::<sys::__kernel_sockaddr_storage>() {
        return Err(EBADF);
    }
    // SUNRPC gives its own module reference back when this returns; the transport keeps this one.
    let module = ModuleRef::get().ok_or(EIO)?;

    // SAFETY: The caller guarantees that the namespace is valid. The memory is zeroed, which is
    // fine for all fields that follow `xprt`, and `xprt` is its start.
    let xprt = unsafe { sys::xprt_alloc(args.net, mem::size_of::<sys::rpcrdma_xprt>(), 0, slots) };
    let rx = NonNull::new(xprt.cast::<sys::rpcrdma_xprt>()).ok_or(ENOMEM)?;
    let free = ScopeGuard::new_with_data(rx, |rx| {
        // SAFETY: The transport is valid. If its handle is gone, nothing else knows it, so it can
        // be freed. Else the memory is left alone.
        unsafe {
            let rx = rx.as_ptr();
            if XprtHandle::is_gone(rx) {
                address::free_strings(rx);
                sys::xprt_free(&raw mut (*rx).xprt);
            } else {
                kernel::warn_on!(true);
            }
        }
    });

    // SAFETY: The transport is valid, and only this function knows it. The caller guarantees that
    // the address has `addrlen` octets, and that length was checked above.
    unsafe {
        initialise::<T>(rx.as_ptr());
        address::set_address(rx.as_ptr(), args.dstaddr, args.addrlen)?;
    }
    // SAFETY: The transport is from `xprt_alloc`. Its memory is freed only when the handle is gone,
    // above and in `release_callback`. This is the only handle.
    let handle = unsafe { XprtHandle::new(rx) };
    let state = make(handle)?;
    if !ptr::eq(state.xprt().as_ptr(), xprt) {
        kernel::warn_on!(true);
        return Err(EINVAL);
    }
    // SAFETY: The transport is valid, and SUNRPC does not know it yet, so nothing reads the field.
    unsafe { (*rx.as_ptr()).state = Arc::into_raw(state).cast() };

    free.dismiss();
    // `rpcrdma_class_xprt_destroy` gives the reference back.
    module.leave_to_c();
    Ok(rx.cast())
}

/// Sets the fields that are the same in all transports of a `T`.
///
/// # Safety
///
/// `rx` is a new transport that only the caller knows.
unsafe fn initialise<T: Transport>(rx: *mut sys::rpcrdma_xprt) {
    // SAFETY: The caller guarantees that `rx` is valid and not shared. Table, class and timeouts
    // are static.
    unsafe {
        (*rx).release = Some(Ops::<T>::release_callback);
        let xprt = &raw mut (*rx).xprt;
        (*xprt).ops = &Ops::<T>::TABLE;
        (*xprt).xprt_class = &raw const sys::rpcrdma_class_client;
        (*xprt).timeout = &DEFAULT_TIMEOUT;
        (*xprt).connect_timeout = TIMEOUT;
        (*xprt).max_reconnect_timeout = TIMEOUT;
        (*xprt).bind_timeout = TIMEOUT;
        (*xprt).idle_timeout = IDLE;
        (*xprt).max_payload = T::MAX_PAYLOAD;
        // The address is an IP address; this tells protocols that look at it.
        (*xprt).prot = sys::RPCRDMA_IPPROTO_TCP as c_int;
    }
}

/// The registration of the client's transport class, whose transports are `T`s. Dropped, it is
/// undone.
pub(crate) struct ClassRegistration<T: ConnectingTransport>(PhantomData<fn() -> T>);

impl<T: ConnectingTransport> ClassRegistration<T> {
    /// Registers the class.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the kernel has another transport of this kind. Then there is also a line in the
    /// log.
    pub(crate) fn new() -> Result<Self> {
        super::servers::init();
        // SAFETY: The function is a setup operation; `Drop` unregisters the class before the module
        // goes.
        let status = unsafe { sys::rpcrdma_class_register(Some(setup_callback::<T>)) };
        let registered = to_result(status);
        if registered == Err(EEXIST) {
            pr_err!(
                "not loading: this kernel already has an RPC-over-RDMA transport (built in?); boot \
                 a kernel with CONFIG_SUNRPC_XPRT_RDMA=m or n\n"
            );
        }
        registered.map(|()| Self(PhantomData))
    }
}

impl<T: ConnectingTransport> Drop for ClassRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: `new` registered it. No transport is left, since each holds a reference to the
        // module.
        unsafe { sys::rpcrdma_class_unregister() }
    }
}
