// SPDX-License-Identifier: GPL-2.0

//! The `svc_xprt` of a transport.

use crate::{
    kext::errno::EAFNOSUPPORT,
    sunrpc::{
        Net,
        SockAddr, //
    },
    sys, //
};
use core::{
    cell::Cell,
    marker::PhantomData,
    mem,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::{
        new_spinlock,
        SpinLock, //
    },
    types::Opaque, //
};

/// A service, for which a transport is made.
#[derive(Clone, Copy)]
pub(crate) struct Server<'a> {
    /// The service.
    serv: *mut sys::svc_serv,
    /// The namespace.
    net: *mut sys::net,
    /// Who keeps both.
    _keeper: PhantomData<&'a ()>,
}

impl Server<'_> {
    /// Wraps what SUNRPC hands out.
    ///
    /// # Safety
    ///
    /// Both are valid as long as the result lives; the service outlives its transports.
    pub(super) unsafe fn from_raw(serv: *mut sys::svc_serv, net: *mut sys::net) -> Self {
        Self {
            serv,
            net,
            _keeper: PhantomData,
        }
    }

    /// The namespace.
    pub(crate) fn net(&self) -> Net<'_> {
        // SAFETY: Valid by `from_raw`.
        unsafe { Net::from_raw(self.net) }
    }
}

/// What SUNRPC sees of a server transport. It is a field of the transport.
///
/// # Invariants
///
/// `xprt` is initialised. `owner` is null, or comes from `Arc::into_raw` of the transport that the field is part
/// of; then SUNRPC has that reference until `xpo_free`.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub(crate) struct SvcXprt {
    /// First, so that its address is that of the structure.
    #[pin]
    xprt: Opaque<sys::svc_xprt>,
    /// The transport. Written before SUNRPC knows it.
    pub(super) owner: Cell<*const c_void>,
    /// Whether SUNRPC may be told of the transport: false once it is being freed.
    #[pin]
    alive: SpinLock<bool>,
}

// SAFETY: SUNRPC uses a `svc_xprt` from many threads; what is used here is atomic, takes its own locks, or is
// written only before anybody else knows the object.
unsafe impl Send for SvcXprt {}
// SAFETY: As above.
unsafe impl Sync for SvcXprt {}

impl SvcXprt {
    /// Makes the structure for a transport of `server`. It holds its namespace until `xpo_free`.
    pub(crate) fn new(server: Server<'_>) -> impl PinInit<Self> + '_ {
        pin_init!(Self {
            xprt <- Opaque::ffi_init(move |slot: *mut sys::svc_xprt| {
                // SAFETY: The memory is ours, namespace and service are valid.
                unsafe {
                    sys::svc_xprt_init(
                        server.net,
                        &raw mut sys::rpcrdma_class_server,
                        slot,
                        server.serv,
                    )
                }
            }),
            owner: Cell::new(ptr::null()),
            alive <- new_spinlock!(true, "rpcrdma::SvcXprt::alive"),
        })
    }

    /// The structure around a C object.
    ///
    /// # Safety
    ///
    /// `xprt` is one of ours, and not freed during `'a`.
    pub(super) unsafe fn from_raw<'a>(xprt: *mut sys::svc_xprt) -> &'a Self {
        // SAFETY: The C object is the first field.
        unsafe { &*xprt.cast() }
    }

    /// The C object.
    pub(super) fn as_raw(&self) -> *mut sys::svc_xprt {
        self.xprt.get()
    }

    /// The service and the namespace, for another transport of the same.
    pub(crate) fn server(&self) -> Server<'_> {
        // SAFETY: The members do not change; the transport holds the namespace, and goes before the service.
        unsafe { Server::from_raw((*self.as_raw()).xpt_server, (*self.as_raw()).xpt_net) }
    }

    /// From now on SUNRPC is told nothing.
    pub(super) fn bury(&self) {
        *self.alive.lock() = false;
    }

    /// Calls `tell` unless the transport is being freed.
    fn while_alive(&self, tell: impl FnOnce(*mut sys::svc_xprt)) {
        let alive = self.alive.lock();
        if *alive {
            tell(self.as_raw());
        }
        drop(alive);
    }

    /// Sets a flag.
    pub(super) fn set_flag(&self, flag: u32) {
        // SAFETY: The object is initialised; flags are atomic.
        unsafe { sys::svc_xprt_set_flag(self.as_raw(), flag) }
    }

    /// Clears a flag.
    fn clear_flag(&self, flag: u32) {
        // SAFETY: As for `set_flag`.
        unsafe { sys::svc_xprt_clear_flag(self.as_raw(), flag) }
    }

    /// Reads a flag.
    fn flag(&self, flag: u32) -> bool {
        // SAFETY: As for `set_flag`.
        unsafe { sys::svc_xprt_test_flag(self.as_raw(), flag) }
    }

    /// There is something to receive. To be called under the lock of the queue it is in; then
    /// [`Self::enqueue`] without it.
    pub(crate) fn set_data(&self) {
        self.set_flag(sys::XPT_DATA);
    }

    /// There is nothing to receive. To be called under the lock of the queue.
    pub(crate) fn clear_data(&self) {
        self.clear_flag(sys::XPT_DATA);
    }

    /// There is a connection to accept, see [`Self::set_data`].
    pub(crate) fn set_connection(&self) {
        self.set_flag(sys::XPT_CONN);
    }

    /// There is no connection to accept.
    pub(crate) fn clear_connection(&self) {
        self.clear_flag(sys::XPT_CONN);
    }

    /// Has a thread look at the flags.
    pub(crate) fn enqueue(&self) {
        self.while_alive(|xprt| {
            // SAFETY: SUNRPC has not begun to free the transport, and does not before the lock is free.
            unsafe { sys::svc_xprt_enqueue(xprt) }
        });
    }

    /// Has a thread close the transport. May be called from any context.
    pub(crate) fn close(&self) {
        self.while_alive(|xprt| {
            // SAFETY: As for `enqueue`.
            unsafe { sys::svc_xprt_deferred_close(xprt) }
        });
    }

    /// Whether the transport is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.flag(sys::XPT_CLOSE) || self.flag(sys::XPT_DEAD)
    }

    /// Whether SUNRPC may have Calls that it had put off, waiting for an answer from user space, and that it wants to go on
    /// with.
    pub(crate) fn has_deferred(&self) -> bool {
        self.flag(sys::XPT_DEFERRED)
    }

    /// Lets the next thread in. The caller runs in `recvfrom`, and does so once.
    pub(super) fn received(&self) {
        // SAFETY: The caller has `XPT_BUSY` and, through its `svc_rqst`, a reference.
        unsafe { sys::svc_xprt_received(self.as_raw()) }
    }

    /// Sets our own address.
    pub(crate) fn set_local(&self, address: SockAddr<'_>) -> Result {
        let len = address_len(&address)?;
        // SAFETY: The caller is the only one to know the transport; the member is a `sockaddr_storage`.
        unsafe {
            let xprt = self.as_raw();
            copy(&raw mut (*xprt).xpt_local, &address);
            (*xprt).xpt_locallen = len;
        }
        Ok(())
    }

    /// Our address, which was set before anybody else knew the transport.
    pub(crate) fn local(&self) -> SockAddr<'_> {
        // SAFETY: The member is a `sockaddr_storage`, and does not change any more.
        unsafe { SockAddr::copy((&raw const (*self.as_raw()).xpt_local).cast()) }
    }

    /// Sets the peer's address. Its port is arbitrary and not the upper layer's, and changes with each
    /// connection; it is set to zero, so that the reply cache knows a client that connects anew.
    pub(crate) fn set_remote(&self, address: SockAddr<'_>) -> Result {
        let len = address_len(&address)?;
        // SAFETY: As for `set_local`. The text is as long as the array at most.
        unsafe {
            let xprt = self.as_raw();
            copy(&raw mut (*xprt).xpt_remote, &address);
            (*xprt).xpt_remotelen = len;
            sys::rpc_set_port((&raw mut (*xprt).xpt_remote).cast(), 0);
            let room = (*xprt).xpt_remotebuf.len();
            sys::rpc_ntop(
                address.as_ptr(),
                (&raw mut (*xprt).xpt_remotebuf).cast(),
                room,
            );
        }
        Ok(())
    }
}

#[pinned_drop]
impl PinnedDrop for SvcXprt {
    fn drop(self: Pin<&mut Self>) {
        if self.owner.get().is_null() {
            // SUNRPC never knew it, and still has to let go of the namespace. It gives back a reference to the
            // module, which is taken here.
            // SAFETY: Code of ours runs, so the module is referenced. The operations are those of the class, whose
            // `xpo_free` does nothing for a transport without owner.
            unsafe {
                sys::this_module_get();
                sys::svc_xprt_put(self.as_raw());
            }
        }
    }
}

/// The length of an address.
fn address_len(address: &SockAddr<'_>) -> Result<usize> {
    match u32::from(address.family()) {
        sys::AF_INET => Ok(mem::size_of::<sys::sockaddr_in>()),
        sys::AF_INET6 => Ok(mem::size_of::<sys::sockaddr_in6>()),
        _ => Err(EAFNOSUPPORT),
    }
}

/// Copies an address.
///
/// # Safety
///
/// `to` is valid for writes.
unsafe fn copy(to: *mut sys::__kernel_sockaddr_storage, from: &SockAddr<'_>) {
    // SAFETY: A `SockAddr` is a `sockaddr_storage`.
    unsafe {
        to.write(
            from.as_ptr()
                .cast::<sys::__kernel_sockaddr_storage>()
                .read(),
        )
    }
}
