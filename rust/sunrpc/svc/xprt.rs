// SPDX-License-Identifier: GPL-2.0

//! The `svc_xprt` of a transport of the server.

use crate::kext::prelude::*;
use crate::policy::accept::Newcomers;
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

    /// Returns the connections of the service whose peers have not shown a file handle yet, or
    /// [`None`] if they are fewer than `least`.
    pub(crate) fn newcomers(&self, least: u32) -> Option<Newcomers> {
        // SAFETY: The service is valid while `self` lives, by `from_raw`. Others change the number
        // meanwhile, as an aligned word.
        let count = unsafe { (&raw const (*self.serv).sv_tmpcnt).read_volatile() };
        let all = u32::try_from(count).unwrap_or(0);
        // SAFETY: As above.
        (all >= least).then(|| unsafe { Newcomers::of(self.serv, all) })
    }
}

/// The most connections of a service that SUNRPC tolerates whose peers have not shown a file handle
/// yet.
pub(crate) const MOST_NEWCOMERS: u32 = sys::XPT_MAX_TMP_CONN;

impl Newcomers {
    /// Counts those of `serv`, of which there are about `all`.
    ///
    /// # Safety
    ///
    /// The service is valid.
    unsafe fn of(serv: *mut sys::svc_serv, all: u32) -> Self {
        // SAFETY: The caller guarantees that the service is valid.
        let lock = unsafe { &raw mut (*serv).sv_lock };
        // SAFETY: The lock is that of the service, and not held: SUNRPC calls no transport with it.
        unsafe { sys::spin_lock_bh(lock) };
        // SAFETY: The lock protects the list.
        let found = unsafe { Self::of_list(&raw mut (*serv).sv_tempsocks, all) };
        // SAFETY: It was locked above.
        unsafe { sys::spin_unlock_bh(lock) };
        found
    }

    /// Counts those in `list`, to which SUNRPC adds connections at the front. Ends when it has seen
    /// `all`: the others, of which there may be thousands, have shown a file handle.
    ///
    /// # Safety
    ///
    /// `list` is a list of transports, and is not changed meanwhile.
    unsafe fn of_list(list: *mut sys::list_head, all: u32) -> Self {
        let mut found = Self::default();
        // SAFETY: The caller guarantees that it is a list.
        let mut at = unsafe { (*list).prev };
        while at != list && found.all < all {
            // SAFETY: The caller guarantees that each element is in a transport.
            let xprt = unsafe { &raw mut *kernel::container_of!(at, sys::svc_xprt, xpt_list) };
            // SAFETY: As above. A class does not change; `at` is still in the list.
            let is_own = unsafe {
                at = (*at).prev;
                ptr::eq((*xprt).xpt_class, &raw const sys::rpcrdma_class_server)
            };
            // SAFETY: The transport is valid, and flags are accessed atomically.
            if unsafe { sys::svc_xprt_test_flag(xprt, sys::XPT_PEER_VALID) } {
                continue;
            }
            found.oldest_is_own |= is_own && found.all == 0;
            found.own += u32::from(is_own);
            found.all += 1;
        }
        found
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

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_sunrpc_svc_xprt)]
mod tests {
    use super::*;

    /// A connection over RDMA or another transport, whose peer has shown a file handle or not.
    #[derive(Clone, Copy)]
    struct Peer {
        own: bool,
        valid: bool,
    }

    const RDMA: Peer = Peer {
        own: true,
        valid: false,
    };
    const TCP: Peer = Peer {
        own: false,
        valid: false,
    };

    /// Counts newcomers among `peers`, the oldest first, until `all` were found.
    fn found(peers: &[Peer], all: u32) -> Result<Newcomers> {
        let mut list = KBox::<sys::list_head>::init(pin_init::init_zeroed(), GFP_KERNEL)?;
        let head: *mut sys::list_head = &mut *list;
        let mut xprts = KVec::new();
        let mut younger = head;
        for peer in peers.iter().rev() {
            let mut xprt = KBox::<sys::svc_xprt>::init(pin_init::init_zeroed(), GFP_KERNEL)?;
            if peer.own {
                xprt.xpt_class = &raw mut sys::rpcrdma_class_server;
            }
            if peer.valid {
                // SAFETY: Only this test has the transport.
                unsafe { sys::svc_xprt_set_flag(&mut *xprt, sys::XPT_PEER_VALID) };
            }
            let entry = &raw mut xprt.xpt_list;
            // SAFETY: All entries stay where they are until the list is not used any more.
            unsafe {
                (*younger).next = entry;
                (*entry).prev = younger;
            }
            younger = entry;
            xprts.push(xprt, GFP_KERNEL)?;
        }
        // SAFETY: As above.
        unsafe {
            (*younger).next = head;
            (*head).prev = younger;
            Ok(Newcomers::of_list(head, all))
        }
    }

    #[test]
    fn newcomers_are_counted_by_transport() -> Result {
        let old = Peer {
            own: true,
            valid: true,
        };
        let wanted = |all, own, oldest_is_own| Newcomers {
            all,
            own,
            oldest_is_own,
        };
        assert_eq!(found(&[], 5)?, wanted(0, 0, false));
        assert_eq!(found(&[old, old], 5)?, wanted(0, 0, false));
        assert_eq!(found(&[old, TCP, RDMA, old, RDMA], 5)?, wanted(3, 2, false));
        assert_eq!(found(&[old, RDMA, TCP, TCP, old], 5)?, wanted(3, 1, true));
        assert_eq!(found(&[TCP; 9], 9)?, wanted(9, 0, false));
        // No more than there are said to be.
        assert_eq!(found(&[RDMA, TCP, RDMA], 2)?, wanted(2, 1, true));
        Ok(())
    }
}
