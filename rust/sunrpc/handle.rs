// SPDX-License-Identifier: GPL-2.0

//! A transport's own `rpc_xprt`.
//!
//! C header: [`include/linux/sunrpc/xprt.h`](srctree/include/linux/sunrpc/xprt.h)

use super::{
    address::{
        AddressText,
        Net,
        SockAddr, //
    },
    pinned::Pinned,
    slot::Slot,
    task::RpcTask,
    transport::Transport, //
};
use crate::{
    kext::time,
    sys, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

/// What a transport does with the `rpc_xprt` that SUNRPC knows it by.
///
/// There is one handle per `rpc_xprt`, made by its setup; the memory is not freed before the handle is
/// gone, so all methods are safe. They take the locks they need themselves. None may be called in
/// interrupt context, because SUNRPC's locks do not disable interrupts.
///
/// # Invariants
///
/// The pointer is valid.
pub(crate) struct XprtHandle(NonNull<sys::rpcrdma_xprt>);

// SAFETY: An `rpc_xprt` belongs to no thread.
unsafe impl Send for XprtHandle {}

// SAFETY: All methods can be called concurrently: they take SUNRPC's locks, use atomic functions, or read
// single words that SUNRPC reads without lock too.
unsafe impl Sync for XprtHandle {}

/// Holds one of SUNRPC's spinlocks.
pub(super) struct SpinGuard(*mut sys::spinlock_t);

impl SpinGuard {
    /// Takes the lock.
    ///
    /// # Safety
    ///
    /// `lock` is valid until the guard is dropped.
    pub(super) unsafe fn lock(lock: *mut sys::spinlock_t) -> Self {
        // SAFETY: The caller guarantees it.
        unsafe { sys::spin_lock(lock) };
        Self(lock)
    }
}

impl Drop for SpinGuard {
    fn drop(&mut self) {
        // SAFETY: The guard stands for the lock being held.
        unsafe { sys::spin_unlock(self.0) }
    }
}

/// The figures that SUNRPC keeps of a transport. Times are in jiffies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct XprtStats {
    /// Port lookups.
    pub(crate) bind_count: usize,
    /// Connections made.
    pub(crate) connect_count: usize,
    /// Time spent connecting.
    pub(crate) connect_time: usize,
    /// How long ago the transport was last used, if it is connected.
    pub(crate) idle_time: usize,
    /// Calls sent.
    pub(crate) sends: usize,
    /// Replies received.
    pub(crate) recvs: usize,
    /// Replies to no Call.
    pub(crate) bad_xids: usize,
    /// Calls in flight, summed up at each Send.
    pub(crate) requests_in_flight: u64,
    /// Tasks in the backlog, summed up at each Send.
    pub(crate) backlog: u64,
}

impl XprtHandle {
    /// Makes the handle of a transport.
    ///
    /// # Safety
    ///
    /// `rx` is a valid transport from `xprt_alloc`, its memory is not freed while `handles` is not zero,
    /// and there is no other handle of it.
    pub(super) unsafe fn new(rx: NonNull<sys::rpcrdma_xprt>) -> Self {
        // SAFETY: The caller guarantees it.
        unsafe { (*rx.as_ptr()).handles = 1 };
        // INVARIANT: The memory stays while `handles` is one, which `Drop` ends.
        Self(rx)
    }

    /// Whether the handle of a transport is gone.
    ///
    /// # Safety
    ///
    /// `rx` is valid.
    pub(super) unsafe fn is_gone(rx: *mut sys::rpcrdma_xprt) -> bool {
        // SAFETY: The caller guarantees it; the field is accessed atomically from `new` on.
        // `Acquire`: what was done with the handle comes before.
        unsafe { Atomic::from_ptr(&raw mut (*rx).handles) }.load(Acquire) == 0
    }

    /// The C object.
    pub(super) fn as_ptr(&self) -> *mut sys::rpc_xprt {
        // SAFETY: The pointer is valid; no reference is made.
        unsafe { &raw mut (*self.0.as_ptr()).xprt }
    }

    /// Takes the lock of the receive queue.
    pub(super) fn lock_queue(&self) -> SpinGuard {
        // SAFETY: The lock is valid as long as the handle, which the guard's users keep.
        unsafe { SpinGuard::lock(&raw mut (*self.as_ptr()).queue_lock) }
    }

    /// Takes the lock of the transport's state.
    fn lock_transport(&self) -> SpinGuard {
        // SAFETY: As for `lock_queue`.
        unsafe { SpinGuard::lock(&raw mut (*self.as_ptr()).transport_lock) }
    }

    /// Finds the RPC that waits for a Reply with this XID, and keeps it from going away.
    ///
    /// [`None`] if there is none, which SUNRPC counts, or if it is pinned already: then this is a second
    /// Reply, of which nothing is wanted.
    ///
    /// `owner` is the transport that has this handle.
    pub(crate) fn lookup_and_pin<T: Transport>(
        &self,
        owner: &Arc<T>,
        xid: u32,
    ) -> Option<Pinned<T>> {
        let xprt = self.as_ptr();
        // SAFETY: `state` is written once, before anybody can find a Reply.
        let state = unsafe { (*self.0.as_ptr()).state };
        if !ptr::eq(state, Arc::as_ptr(owner).cast()) {
            kernel::warn_on!(true);
            return None;
        }
        let guard = self.lock_queue();
        // SAFETY: `queue_lock` is held.
        let rqst = unsafe { sys::xprt_lookup_rqst(xprt, xid.to_be()) };
        if rqst.is_null() {
            return None;
        }
        // SAFETY: All requests of this transport are slots that `T` lent, as `state` is a `T`. SUNRPC
        // does not give it back while it is in the receive queue, which the lock keeps as it is.
        let slot: Arc<Slot<T::Call>> = (*unsafe { Slot::of(rqst) }).clone();
        if slot.pinned().load(Relaxed) {
            drop(guard);
            return None;
        }
        slot.pinned().store(true, Relaxed);
        // SAFETY: `queue_lock` has been held since the lookup.
        unsafe { sys::xprt_pin_rqst(rqst) };
        drop(guard);
        // SAFETY: The slot was just pinned, by us and nobody else.
        Some(unsafe { Pinned::new(owner.clone(), slot) })
    }

    /// Nothing can be sent for want of resources: no task gets the send lock until
    /// [`write_space`](Self::write_space).
    pub(crate) fn wait_for_buffer_space(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_wait_for_buffer_space(self.as_ptr()) }
    }

    /// There are resources again.
    pub(crate) fn write_space(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_write_space(self.as_ptr()) };
    }

    /// Has SUNRPC close the connection, from a worker of its own. May be called in any state.
    pub(crate) fn force_disconnect(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_force_disconnect(self.as_ptr()) }
    }

    /// The connection is gone: tells all who wait for anything.
    pub(crate) fn disconnect_done(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_disconnect_done(self.as_ptr()) }
    }

    /// Whether SUNRPC takes the transport for connected.
    pub(crate) fn is_connected(&self) -> bool {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_connected(self.as_ptr()) != 0 }
    }

    /// Whether SUNRPC is to close the transport as soon as nobody holds the send lock.
    pub(crate) fn is_to_be_closed(&self) -> bool {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_close_wait(self.as_ptr()) }
    }

    /// The transport is connected.
    pub(crate) fn set_connected(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_set_connected(self.as_ptr()) }
    }

    /// The transport is not connected.
    pub(crate) fn clear_connected(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_clear_connected(self.as_ptr()) }
    }

    /// The attempt to connect is over.
    pub(crate) fn clear_connecting(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_clear_connecting(self.as_ptr()) }
    }

    /// The name under which the connect worker holds the send lock.
    fn connect_cookie_ptr(&self) -> *mut c_void {
        self.as_ptr().cast()
    }

    /// Makes the connect worker the holder of the send lock, instead of `task`. Returns whether `task`
    /// held it, which is so when SUNRPC calls `connect`.
    pub(crate) fn lock_connect(&self, task: &RpcTask) -> bool {
        // SAFETY: Transport and task are valid.
        unsafe { sys::xprt_lock_connect(self.as_ptr(), task.as_raw(), self.connect_cookie_ptr()) }
    }

    /// Ends [`lock_connect`](Self::lock_connect).
    pub(crate) fn unlock_connect(&self) {
        // SAFETY: The transport is valid; the function does nothing if the lock has another holder.
        unsafe { sys::xprt_unlock_connect(self.as_ptr(), self.connect_cookie_ptr()) }
    }

    /// Wakes all tasks that wait for a Reply or a connection, and tells them why.
    pub(crate) fn wake_pending_tasks(&self, status: Error) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_wake_pending_tasks(self.as_ptr(), status.to_errno()) }
    }

    /// How long to wait before the next attempt to connect, in jiffies.
    pub(crate) fn reconnect_delay(&self) -> usize {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_reconnect_delay(self.as_ptr()) }
    }

    /// Doubles the delay, from `init` up to the transport's maximum. The caller has the send lock.
    pub(crate) fn reconnect_backoff(&self, init: usize) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_reconnect_backoff(self.as_ptr(), init) }
    }

    /// The delay that [`reconnect_backoff`](Self::reconnect_backoff) doubles, in jiffies. Zero in a new
    /// transport.
    pub(crate) fn reestablish_timeout(&self) -> usize {
        // SAFETY: The transport is valid; it is a word that SUNRPC reads without lock too.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).reestablish_timeout) }
    }

    /// Sets the delay that [`reconnect_backoff`](Self::reconnect_backoff) doubles; zero makes the next
    /// attempt immediate.
    pub(crate) fn set_reestablish_timeout(&self, jiffies: usize) {
        // SAFETY: The transport is valid; it is a word that SUNRPC reads without lock too.
        unsafe { ptr::write_volatile(&raw mut (*self.as_ptr()).reestablish_timeout, jiffies) }
    }

    /// A new connection begins: no request has a credit, and there is one until the peer grants more
    /// (RFC 8166 section 3.3.3).
    ///
    /// Requests that were sent on the old connection have to take a credit again. SUNRPC does not know
    /// that: it would give back, for each of them, what the new count does not contain, and the count
    /// would fall below zero. `SendRqst::get_congestion` and the `release_request` operation
    /// therefore look at the epoch that begins here.
    pub(crate) fn reset_congestion(&self) {
        let guard = self.lock_transport();
        let rx = self.0.as_ptr();
        // SAFETY: The transport is valid, and `transport_lock` protects these.
        unsafe {
            (*rx).cong_epoch = (*rx).cong_epoch.wrapping_add(1);
            (*rx).xprt.cong = 0;
            (*rx).xprt.cwnd = 1 << sys::RPC_CWNDSHIFT;
        }
        drop(guard);
    }

    /// Counts the calls of [`reset_congestion`](Self::reset_congestion). The caller has the send lock,
    /// under which it is called.
    pub(super) fn congestion_epoch(&self) -> u32 {
        // SAFETY: The transport is valid.
        unsafe { (*self.0.as_ptr()).cong_epoch }
    }

    /// The peer grants `credits`; at least one, or nothing could ever be sent again.
    ///
    /// Call it before the Reply that brought the grant is completed: when its task lets go of the
    /// request, SUNRPC looks at the window and wakes who waits for it.
    pub(crate) fn set_credits(&self, credits: u32) {
        let guard = self.lock_transport();
        // SAFETY: The transport is valid, and `transport_lock` protects it.
        unsafe {
            (*self.as_ptr()).cwnd = (credits.max(1) as usize) << sys::RPC_CWNDSHIFT;
        }
        drop(guard);
    }

    /// What tells one connection of the transport from the next.
    pub(crate) fn connect_cookie(&self) -> u32 {
        // SAFETY: The transport is valid; it is a word that SUNRPC reads without lock too.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).connect_cookie) }
    }

    /// Begins or ends a connection. The caller has the send lock, which keeps others from doing the
    /// same.
    pub(crate) fn bump_connect_cookie(&self) {
        let next = self.connect_cookie().wrapping_add(1);
        // SAFETY: As for `connect_cookie`.
        unsafe { ptr::write_volatile(&raw mut (*self.as_ptr()).connect_cookie, next) }
    }

    /// The number by which SUNRPC names the transport in sysfs. Its debugfs counts by itself.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: The transport is valid, and this does not change.
        unsafe { (*self.as_ptr()).id }
    }

    /// The number of Calls that have a credit of the current connection.
    pub(crate) fn credits_in_use(&self) -> usize {
        // SAFETY: The transport is valid; it is a word that SUNRPC reads without lock too.
        let cong = unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).cong) };
        cong >> sys::RPC_CWNDSHIFT
    }

    /// The number of slots SUNRPC reckons with.
    pub(crate) fn max_reqs(&self) -> u32 {
        // SAFETY: The transport is valid, and this does not change.
        unsafe { (*self.as_ptr()).max_reqs }
    }

    /// Whether swap is carried over this transport.
    pub(crate) fn swapping(&self) -> bool {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_swapping(self.as_ptr()) != 0 }
    }

    /// Whether there is a service that answers reverse-direction Calls.
    pub(crate) fn has_bc_server(&self) -> bool {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_has_bc_server(self.as_ptr()) }
    }

    /// A connection was made. The caller has the send lock.
    pub(crate) fn count_connect(&self) {
        // SAFETY: The transport is valid, and the send lock keeps others from changing these.
        unsafe {
            let stat = &raw mut (*self.as_ptr()).stat;
            let spent = time::jiffies().wrapping_sub((*stat).connect_start);
            (*stat).connect_count = (*stat).connect_count.wrapping_add(1);
            (*stat).connect_time = (*stat).connect_time.wrapping_add(spent);
        }
    }

    /// The server's transport, which this one for Calls to a client belongs to, goes away.
    pub(crate) fn forget_server(&self) {
        // SAFETY: The transport is valid; it is a word that SUNRPC reads without lock too.
        unsafe { ptr::write_volatile(&raw mut (*self.as_ptr()).bc_xprt, ptr::null_mut()) }
    }

    /// The address of the server. The caller has the send lock, under which it may change.
    pub(crate) fn address(&self) -> SockAddr<'_> {
        // SAFETY: The transport is valid.
        unsafe { SockAddr::copy(&raw const (*self.as_ptr()).addr) }
    }

    /// The network namespace of the transport.
    pub(crate) fn net(&self) -> Net<'_> {
        // SAFETY: The transport holds a reference to it, as long as it lives.
        unsafe { Net::from_raw((*self.as_ptr()).xprt_net) }
    }

    /// The address of the server, for people.
    pub(crate) fn display(&self) -> AddressText {
        // SAFETY: The transport is valid; its setup made the strings.
        unsafe { AddressText::of(self.as_ptr()) }
    }

    /// SUNRPC's figures.
    pub(crate) fn stats(&self) -> XprtStats {
        let xprt = self.as_ptr();
        // SAFETY: The transport is valid. These are words that SUNRPC reads without lock too; no
        // reference to them is made.
        unsafe {
            let stat = &raw const (*xprt).stat;
            let idle = time::jiffies().wrapping_sub((*xprt).last_used);
            XprtStats {
                bind_count: (*stat).bind_count,
                connect_count: (*stat).connect_count,
                connect_time: (*stat).connect_time,
                idle_time: if self.is_connected() { idle } else { 0 },
                sends: (*stat).sends,
                recvs: (*stat).recvs,
                bad_xids: (*stat).bad_xids,
                requests_in_flight: (*stat).req_u,
                backlog: (*stat).bklog_u,
            }
        }
    }
}

impl Drop for XprtHandle {
    fn drop(&mut self) {
        // SAFETY: The pointer is valid; it is not used after this.
        // `Release`: whoever sees the zero may free the memory.
        unsafe { Atomic::from_ptr(&raw mut (*self.0.as_ptr()).handles) }.store(0, Release);
    }
}
