// SPDX-License-Identifier: GPL-2.0

//! The `svc_xprt` of a transport of the server.

use crate::kext::prelude::*;
use crate::{
    kext::net::{
        Net,
        SockAddr, //
    },
    sys, //
};
use core::{
    cell::Cell,
    mem,
    ptr, //
};
use kernel::types::Opaque;

/// A service and a namespace, for which a transport is made.
#[derive(Clone, Copy)]
pub(crate) struct Server<'a> {
    /// The service.
    serv: *mut sys::svc_serv,
    /// The namespace.
    net: *mut sys::net,
    /// Ties the lifetime to the object that keeps both.
    _keeper: PhantomData<&'a ()>,
}

impl Server<'_> {
    /// Wraps the pointers that SUNRPC passes.
    ///
    /// # Safety
    ///
    /// Both are valid as long as the result lives, and the service outlives its transports.
    pub(super) unsafe fn from_raw(serv: *mut sys::svc_serv, net: *mut sys::net) -> Self {
        Self {
            serv,
            net,
            _keeper: PhantomData,
        }
    }

    /// Returns the namespace.
    pub(crate) fn net(&self) -> Net<'_> {
        // SAFETY: The namespace is valid while `self` lives, by `from_raw`.
        unsafe { Net::from_raw(self.net) }
    }

    /// Returns the number of connections, of all transports of the service, whose peers have not
    /// shown a file handle yet. SUNRPC ends the oldest of more than `XPT_MAX_TMP_CONN` of them.
    pub(crate) fn newcomers(&self) -> u32 {
        // SAFETY: The service is valid while `self` lives, by `from_raw`. Others change the number
        // meanwhile, as an aligned word.
        let count = unsafe { (&raw const (*self.serv).sv_tmpcnt).read_volatile() };
        u32::try_from(count).unwrap_or(0)
    }
}

/// The part of a server transport that SUNRPC sees. It is a field of the transport.
///
/// # Invariants
///
/// `xprt` is initialised. `owner` is null, or comes from `Arc::into_raw` of the transport that the
/// field is part of; then SUNRPC has that reference until `xpo_free`.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub(crate) struct SvcXprt {
    /// The C object. It is first, so that its address is that of the structure.
    #[pin]
    xprt: Opaque<sys::svc_xprt>,
    /// The transport. Written before SUNRPC knows the transport.
    pub(super) owner: Cell<*const c_void>,
    /// True while SUNRPC may be told of the transport, that is, until it is being freed.
    #[pin]
    alive: SpinLock<bool>,
}

// SAFETY: A `svc_xprt` belongs to no thread: SUNRPC uses it from many. `owner` points at a
// transport that may be sent.
unsafe impl Send for SvcXprt {}
// SAFETY: SUNRPC uses a `svc_xprt` from many threads. The methods here access it atomically, by
// functions that take its locks, or, like `owner`, write it only before other threads know the
// object.
unsafe impl Sync for SvcXprt {}

impl SvcXprt {
    /// Makes the structure for a transport of `server`. It holds the namespace until `xpo_free`.
    pub(crate) fn new(server: Server<'_>) -> impl PinInit<Self> + '_ {
        pin_init!(Self {
            xprt <- Opaque::ffi_init(move |slot: *mut sys::svc_xprt| {
                // SAFETY: `slot` is valid for writes and does not move. Namespace and service are
                // valid.
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

    /// Returns the structure around a C object.
    ///
    /// # Safety
    ///
    /// `xprt` is the C object of a `SvcXprt`, which is not freed during `'a`.
    pub(super) unsafe fn from_raw<'a>(xprt: *mut sys::svc_xprt) -> &'a Self {
        // SAFETY: The C object is the first field.
        unsafe { &*xprt.cast() }
    }

    /// Returns the C object.
    pub(super) fn as_raw(&self) -> *mut sys::svc_xprt {
        self.xprt.get()
    }

    /// Returns the service and the namespace, for another transport of the same.
    pub(crate) fn server(&self) -> Server<'_> {
        // SAFETY: The members do not change. The transport holds the namespace, and goes before the
        // service does.
        unsafe { Server::from_raw((*self.as_raw()).xpt_server, (*self.as_raw()).xpt_net) }
    }

    /// Notes that SUNRPC frees the transport, and must not be told of it any more.
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
        // SAFETY: The object is initialised, and flags are accessed atomically.
        unsafe { sys::svc_xprt_set_flag(self.as_raw(), flag) }
    }

    /// Clears a flag.
    fn clear_flag(&self, flag: u32) {
        // SAFETY: The object is initialised, and flags are accessed atomically.
        unsafe { sys::svc_xprt_clear_flag(self.as_raw(), flag) }
    }

    /// Returns whether any of some flags is set.
    #[inline]
    fn has_any<const COUNT: usize>(&self, flags: [u32; COUNT]) -> bool {
        // SAFETY: The object is initialised. Flags are accessed atomically: this reads the word
        // once, as `test_bit` does.
        let word = unsafe { (&raw const (*self.as_raw()).xpt_flags).read_volatile() };
        flags.iter().any(|flag| word & (1 << flag) != 0)
    }

    /// Notes that there is something to receive. Call this under the lock of the queue that it is
    /// in, and then [`Self::enqueue`] without that lock.
    pub(crate) fn set_data(&self) {
        self.set_flag(sys::XPT_DATA);
    }

    /// Notes that there is nothing to receive. Call this under the lock of the queue.
    pub(crate) fn clear_data(&self) {
        self.clear_flag(sys::XPT_DATA);
    }

    /// Notes that there is a connection to accept. Call it as described for [`Self::set_data`].
    pub(crate) fn set_connection(&self) {
        self.set_flag(sys::XPT_CONN);
    }

    /// Notes that there is no connection to accept.
    pub(crate) fn clear_connection(&self) {
        self.clear_flag(sys::XPT_CONN);
    }

    /// Makes a thread of the service look at the flags.
    pub(crate) fn enqueue(&self) {
        self.while_alive(|xprt| {
            // SAFETY: SUNRPC has not begun to free the transport, and does not get further than
            // `bury` while `alive` is locked.
            unsafe { sys::svc_xprt_enqueue(xprt) }
        });
    }

    /// Makes a thread of the service close the transport. May be called from any context.
    pub(crate) fn close(&self) {
        self.while_alive(|xprt| {
            // SAFETY: SUNRPC has not begun to free the transport, and does not get further than
            // `bury` while `alive` is locked.
            unsafe { sys::svc_xprt_deferred_close(xprt) }
        });
    }

    /// Returns whether the transport is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.has_any([sys::XPT_CLOSE, sys::XPT_DEAD])
    }

    /// Returns whether SUNRPC may have deferred Calls that it wants to go on with. It defers a Call
    /// that waits for an answer from user space.
    pub(crate) fn has_deferred(&self) -> bool {
        self.has_any([sys::XPT_DEFERRED])
    }

    /// Lets the next thread in. Called once, by the thread that runs `recvfrom`.
    pub(super) fn received(&self) {
        // SAFETY: The caller has `XPT_BUSY` and, through its `svc_rqst`, a reference.
        unsafe { sys::svc_xprt_received(self.as_raw()) }
    }

    /// Sets the local address.
    pub(crate) fn set_local(&self, address: SockAddr<'_>) -> Result {
        let len = address_len(&address)?;
        // SAFETY: The transport sets its address before other threads know it. The member is a
        // `sockaddr_storage`.
        unsafe {
            let xprt = self.as_raw();
            copy(&raw mut (*xprt).xpt_local, &address);
            (*xprt).xpt_locallen = len;
        }
        Ok(())
    }

    /// Returns the local address, which was set before other threads knew the transport.
    pub(crate) fn local(&self) -> SockAddr<'_> {
        // SAFETY: The member is a `sockaddr_storage`, and is not changed after it was set.
        unsafe { SockAddr::copy((&raw const (*self.as_raw()).xpt_local).cast()) }
    }

    /// Sets the address of the peer, with a port of zero. The real port is arbitrary, not that of
    /// the upper layer, and changes with each connection. With zero the reply cache recognises a
    /// client that connects anew.
    pub(crate) fn set_remote(&self, address: SockAddr<'_>) -> Result {
        let len = address_len(&address)?;
        // SAFETY: The transport sets the address before other threads know it. The member is a
        // `sockaddr_storage`. The text is at most as long as the array.
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
            // SUNRPC never knew the transport, but must still give its namespace back.
            // `svc_xprt_put` also gives a reference to the module back, which is taken here.
            // SAFETY: Code of the module runs, so the module is referenced. The operations are
            // those of the class, whose `xpo_free` does nothing for a transport without owner.
            unsafe {
                sys::this_module_get();
                sys::svc_xprt_put(self.as_raw());
            }
        }
    }
}

/// Returns the length of an address.
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
    // SAFETY: A `SockAddr` has a whole `sockaddr_storage`, and the caller guarantees that `to` is
    // valid for writes.
    unsafe {
        to.write(
            from.as_ptr()
                .cast::<sys::__kernel_sockaddr_storage>()
                .read(),
        )
    }
}
