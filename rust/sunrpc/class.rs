// SPDX-License-Identifier: GPL-2.0

//! Transport classes, and how a transport comes into being.

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
use crate::{
    kext::{
        module_ref::ModuleRef,
        time::HZ, //
    },
    sys, //
};
use core::{
    marker::PhantomData,
    mem,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc,
    types::ScopeGuard, //
};

/// How long an RPC waits for its Reply, and a task for a port lookup or a connection, in jiffies.
const TIMEOUT: usize = 60 * HZ;

/// How long a connection that is not used is kept, in jiffies.
const IDLE: usize = 5 * 60 * HZ;

/// The timeouts of a transport until somebody changes them. Static, because the clients of a transport keep
/// pointers to it.
static DEFAULT_TIMEOUT: sys::rpc_timeout = sys::rpc_timeout {
    to_initval: TIMEOUT,
    to_maxval: TIMEOUT,
    to_increment: 0,
    to_retries: 0,
    to_exponential: 0,
};

/// The `setup` operation of the client's class: makes a transport.
///
/// # Safety
///
/// `args` is valid, and so are its `dstaddr` (for `addrlen` octets) and its `net`.
unsafe extern "C" fn setup_callback<T: ConnectingTransport>(
    args: *mut sys::xprt_create,
) -> *mut sys::rpc_xprt {
    // SAFETY: The caller guarantees it.
    match unsafe { setup(&*args, tunables::slot_table_entries(), T::setup) } {
        Ok(xprt) => xprt.as_ptr(),
        Err(error) => error.to_ptr(),
    }
}

/// The `setup` operation of the class of transports for Calls to clients.
///
/// # Safety
///
/// As for [`setup_callback`]; the caller has a reference to `bc_xprt`, if that is not null.
pub(super) unsafe extern "C" fn callback_setup_callback<T: CallbackTransport>(
    args: *mut sys::xprt_create,
) -> *mut sys::rpc_xprt {
    // SAFETY: The caller guarantees it.
    match unsafe { callback_setup::<T>(&*args) } {
        Ok(xprt) => xprt.as_ptr(),
        Err(error) => error.to_ptr(),
    }
}

/// Makes a transport for Calls to a client.
///
/// # Safety
///
/// As for [`callback_setup_callback`].
unsafe fn callback_setup<T: CallbackTransport>(
    args: &sys::xprt_create,
) -> Result<NonNull<sys::rpc_xprt>> {
    // SAFETY: The caller guarantees it.
    let connection = unsafe { svc::connection::<T::Connection>(args.bc_xprt) }.ok_or(EINVAL)?;
    // SAFETY: The caller guarantees it.
    let made = unsafe { setup(args, T::SLOTS, |xprt| T::setup(xprt, &connection)) }?;
    let xprt = made.as_ptr();
    // SAFETY: Nobody but us and the server's transport knows the new one. It holds a reference to it until it is
    // freed.
    unsafe {
        (*xprt).xprt_class = &raw const sys::rpcrdma_class_backchannel;
        // It is connected for as long as it lives, and somebody else decides how long that is.
        (*xprt).bind_timeout = 0;
        (*xprt).idle_timeout = 0;
        sys::xprt_set_bound(xprt);
        sys::xprt_set_connected(xprt);
        (*xprt).bc_xprt = args.bc_xprt;
        sys::xprt_get(xprt);
        (*args.bc_xprt).xpt_bc_xprt = xprt;
        // SUNRPC marks the server's transport as dead, and then closes ours, if it finds it.
        sys::smp_mb();
        if svc::is_dead(args.bc_xprt) {
            Ops::<T>::close_callback(xprt);
        }
    }
    Ok(made)
}

/// Makes a transport with `slots` slots.
///
/// # Safety
///
/// As for [`setup_callback`].
unsafe fn setup<T: Transport>(
    args: &sys::xprt_create,
    slots: u32,
    make: impl FnOnce(XprtHandle) -> Result<Arc<T>>,
) -> Result<NonNull<sys::rpc_xprt>> {
    if args.addrlen > mem::size_of::<sys::__kernel_sockaddr_storage>() {
        return Err(EBADF);
    }
    // SUNRPC lets go of its reference when this returns; the transport keeps this one.
    let module = ModuleRef::get().ok_or(EIO)?;

    // SAFETY: The namespace is valid. The memory is zeroed, and `xprt` is its start.
    let xprt = unsafe { sys::xprt_alloc(args.net, mem::size_of::<sys::rpcrdma_xprt>(), 0, slots) };
    let rx = NonNull::new(xprt.cast::<sys::rpcrdma_xprt>()).ok_or(ENOMEM)?;
    let free = ScopeGuard::new_with_data(rx, |rx| {
        // SAFETY: Only we know the transport, unless its handle went astray.
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

    // SAFETY: The transport is valid and ours; the address is as long as SUNRPC says, which was checked to
    // fit.
    unsafe {
        initialise::<T>(rx.as_ptr());
        address::set_address(rx.as_ptr(), args.dstaddr, args.addrlen)?;
    }
    // SAFETY: The memory is freed only when the handle is gone, above and in `release_callback`; this is the
    // only handle.
    let handle = unsafe { XprtHandle::new(rx) };
    let state = make(handle)?;
    if !ptr::eq(state.xprt().as_ptr(), xprt) {
        kernel::warn_on!(true);
        return Err(EINVAL);
    }
    // SAFETY: The transport is valid and ours.
    unsafe { (*rx.as_ptr()).state = Arc::into_raw(state).cast() };

    free.dismiss();
    // `rpcrdma_class_xprt_destroy` gives it back.
    module.leave_to_c();
    Ok(rx.cast())
}

/// Sets what all our transports have in common.
///
/// # Safety
///
/// `rx` is a new transport that only the caller knows.
unsafe fn initialise<T: Transport>(rx: *mut sys::rpcrdma_xprt) {
    // SAFETY: The caller guarantees it. Table, class and timeouts are static.
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
        // The address is one of IP, for protocols that look at it.
        (*xprt).prot = sys::RPCRDMA_IPPROTO_TCP as c_int;
    }
}

/// Keeps the client's transport class registered. Its transports are `T`s.
pub(crate) struct Registration<T: ConnectingTransport>(PhantomData<fn() -> T>);

impl<T: ConnectingTransport> Registration<T> {
    /// Registers the class.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the kernel has another transport of this kind, which a line in the log says.
    pub(crate) fn new() -> Result<Self> {
        super::servers::init();
        // SAFETY: The function is a setup operation; `Drop` unregisters the class before the module goes.
        let status = unsafe { sys::rpcrdma_class_register(Some(setup_callback::<T>)) };
        let registered = to_result(status);
        if registered == Err(EEXIST) {
            pr_err!(
                "this kernel already has an RPC-over-RDMA transport; \
                 boot one without (CONFIG_SUNRPC_XPRT_RDMA=m or =n)\n"
            );
        }
        registered.map(|()| Self(PhantomData))
    }
}

impl<T: ConnectingTransport> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: `new` registered it. No transport is left, since each holds a reference to the module.
        unsafe { sys::rpcrdma_class_unregister() }
    }
}
