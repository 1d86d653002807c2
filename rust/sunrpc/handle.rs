// SPDX-License-Identifier: GPL-2.0

//! The handle by which a transport uses its own `rpc_xprt`.
//!
//! C header: [`include/linux/sunrpc/xprt.h`](srctree/include/linux/sunrpc/xprt.h)

use super::{
    address::AddressText,
    pinned::Pinned,
    slot::Slot,
    task::RpcTask,
    transport::Transport, //
};
use crate::kext::prelude::*;
use crate::{
    kext::{
        net::{
            Net,
            SockAddr, //
        },
        time,
        waiting::Waiting, //
    },
    sys, //
};
use core::{
    mem::ManuallyDrop,
    ptr, //
};
use kernel::sync::lock::{
    spinlock::SpinLockBackend,
    Guard, //
};

/// The handle of the `rpc_xprt` by which SUNRPC knows a transport.
///
/// There is one handle per `rpc_xprt`, made by its setup. The memory is not freed before the handle
/// is gone, so all methods are safe. They take the locks they need. None may be called in interrupt
/// context, because SUNRPC's locks do not disable interrupts.
///
/// # Invariants
///
/// The pointer is valid.
pub(crate) struct XprtHandle(NonNull<sys::rpcrdma_xprt>);

// SAFETY: An `rpc_xprt` belongs to no thread.
unsafe impl Send for XprtHandle {}

// SAFETY: All methods can be called concurrently: they take SUNRPC's locks, use atomic functions,
// or read and write single words by volatile accesses, where SUNRPC reads without a lock too.
// `bump_connect_cookie` and `count_connect` read a word and write it afterwards. Their callers have
// the send lock; without it a count would be lost, and nothing else.
unsafe impl Sync for XprtHandle {}

/// A task found no resources to send with, or the next attempt to connect has to wait: no task gets
/// the send lock before that is over.
impl Waiting for XprtHandle {
    fn set(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_wait_for_buffer_space(self.as_ptr()) }
    }

    fn wake(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_write_space(self.as_ptr()) };
    }
}

/// The guard of one of SUNRPC's spinlocks.
type SpinGuard<'a> = Guard<'a, (), SpinLockBackend>;

/// Takes one of SUNRPC's spinlocks.
///
/// # Safety
///
/// `lock` is valid until the guard is dropped.
pub(super) unsafe fn lock<'a>(lock: *mut sys::spinlock_t) -> SpinGuard<'a> {
    // SAFETY: The caller guarantees it.
    unsafe { SpinLock::from_raw(lock) }.lock()
}

/// The statistics that SUNRPC keeps of a transport. Times are in jiffies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct XprtStats {
    /// Port lookups.
    pub(crate) bind_count: usize,
    /// Connections made.
    pub(crate) connect_count: usize,
    /// Time spent connecting.
    pub(crate) connect_time: usize,
    /// Time since the transport was last used, if it is connected.
    pub(crate) idle_time: usize,
    /// Calls sent.
    pub(crate) sends: usize,
    /// Replies received.
    pub(crate) recvs: usize,
    /// Replies that match no Call.
    pub(crate) bad_xids: usize,
    /// Sum, over all Sends, of the Calls in flight.
    pub(crate) requests_in_flight: u64,
    /// Sum, over all Sends, of the tasks in the backlog.
    pub(crate) backlog: u64,
}

impl XprtHandle {
    /// Makes the handle of a transport.
    ///
    /// # Safety
    ///
    /// `rx` is a valid transport from `xprt_alloc`, its memory is not freed while `handles` is not
    /// zero, and there is no other handle of it.
    pub(super) unsafe fn new(rx: NonNull<sys::rpcrdma_xprt>) -> Self {
        // SAFETY: The caller guarantees that `rx` is valid; no other handle uses the field yet.
        unsafe { (*rx.as_ptr()).handles = 1 };
        // INVARIANT: The memory stays while `handles` is one, which `Drop` ends.
        Self(rx)
    }

    /// Returns whether the handle of a transport is gone.
    ///
    /// # Safety
    ///
    /// `rx` is valid.
    pub(super) unsafe fn is_gone(rx: *mut sys::rpcrdma_xprt) -> bool {
        // SAFETY: The caller guarantees that `rx` is valid. The field is accessed atomically from
        // `new` on. `Acquire` orders all uses of the handle before what the caller does next.
        unsafe { Atomic::from_ptr(&raw mut (*rx).handles) }.load(Acquire) == 0
    }

    /// Returns the C object.
    pub(super) fn as_ptr(&self) -> *mut sys::rpc_xprt {
        // SAFETY: The pointer is valid; no reference is made.
        unsafe { &raw mut (*self.0.as_ptr()).xprt }
    }

    /// Takes the lock of the receive queue.
    pub(super) fn lock_queue(&self) -> SpinGuard<'_> {
        // SAFETY: The lock is valid as long as the handle.
        unsafe { lock(&raw mut (*self.as_ptr()).queue_lock) }
    }

    /// Takes the lock of the transport's state.
    fn lock_transport(&self) -> SpinGuard<'_> {
        // SAFETY: The lock is valid as long as the handle.
        unsafe { lock(&raw mut (*self.as_ptr()).transport_lock) }
    }

    /// Finds the RPC that waits for a Reply with this XID, and pins it.
    ///
    /// Returns [`None`] if there is none, which SUNRPC counts, or if it is pinned already: then
    /// this is a second Reply to the same Call, which is ignored.
    ///
    /// `owner` is the transport that has this handle.
    pub(crate) fn lookup_and_pin<T: Transport>(
        &self,
        owner: &Arc<T>,
        xid: u32,
    ) -> Option<Pinned<T>> {
        let xprt = self.as_ptr();
        // SAFETY: `state` is written once, by setup, before SUNRPC can have an RPC on the
        // transport. The pointer is valid by the invariant.
        let state: *const T = unsafe { (*self.0.as_ptr()).state }.cast();
        if !ptr::eq(state, Arc::as_ptr(owner)) {
            kernel::warn_on!(true);
            return None;
        }
        let guard = self.lock_queue();
        // SAFETY: `queue_lock` is held.
        let rqst = unsafe { sys::xprt_lookup_rqst(xprt, xid.to_be()) };
        if rqst.is_null() {
            return None;
        }
        // SAFETY: `state` is a `T`, so all requests of this transport are slots that `T` lent.
        // SUNRPC does not give a request back while it is in the receive queue, and `queue_lock`
        // keeps it there.
        let slot = unsafe { Slot::<T::Call>::of(rqst) };
        if slot.pinned().load(Relaxed) {
            drop(guard);
            return None;
        }
        slot.pinned().store(true, Relaxed);
        // SAFETY: `queue_lock` has been held since the lookup.
        unsafe { sys::xprt_pin_rqst(rqst) };
        drop(guard);
        // SAFETY: `state` is the reference of the transport, which comes from `Arc::into_raw` of an
        // `Arc` like `owner`, and stays while SUNRPC has an RPC on the transport. The slot was
        // pinned just now, by this call, and `pinned` was false before, so no other object stands
        // for a pin of it.
        Some(unsafe { Pinned::new(ManuallyDrop::new(Arc::from_raw(state)), slot) })
    }

    /// Makes SUNRPC close the connection, from a worker of its own. May be called in any state.
    pub(crate) fn force_disconnect(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_force_disconnect(self.as_ptr()) }
    }

    /// Tells SUNRPC that the connection is gone. It wakes all tasks that wait for the transport.
    pub(crate) fn disconnect_done(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_disconnect_done(self.as_ptr()) }
    }

    /// Returns whether SUNRPC takes the transport for connected.
    pub(crate) fn is_connected(&self) -> bool {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_connected(self.as_ptr()) != 0 }
    }

    /// Returns whether SUNRPC will close the transport as soon as the send lock is free.
    pub(crate) fn is_to_be_closed(&self) -> bool {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_close_wait(self.as_ptr()) }
    }

    /// Marks the transport as connected.
    pub(crate) fn set_connected(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_set_connected(self.as_ptr()) }
    }

    /// Marks the transport as not connected.
    pub(crate) fn clear_connected(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_clear_connected(self.as_ptr()) }
    }

    /// Tells SUNRPC that the attempt to connect is over.
    pub(crate) fn clear_connecting(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_clear_connecting(self.as_ptr()) }
    }

    /// Returns the cookie by which the connect worker holds the send lock.
    fn connect_cookie_ptr(&self) -> *mut c_void {
        self.as_ptr().cast()
    }

    /// Makes the connect worker the holder of the send lock, instead of `task`. Returns whether
    /// `task` held it, as it does when SUNRPC calls `connect`.
    pub(crate) fn lock_connect(&self, task: &RpcTask) -> bool {
        // SAFETY: Transport and task are valid.
        unsafe { sys::xprt_lock_connect(self.as_ptr(), task.as_raw(), self.connect_cookie_ptr()) }
    }

    /// Ends [`lock_connect`](Self::lock_connect).
    pub(crate) fn unlock_connect(&self) {
        // SAFETY: The transport is valid; the function does nothing if the lock has another holder.
        unsafe { sys::xprt_unlock_connect(self.as_ptr(), self.connect_cookie_ptr()) }
    }

    /// Has those look again that sleep until the send lock is free: not tasks, but threads that
    /// change the transport from sysfs, or destroy it. SUNRPC wakes them when a connection or an
    /// attempt to make one ends, and not wherever else it gives the lock back.
    pub(crate) fn wake_lock(&self) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_wake_lock(self.as_ptr()) }
    }

    /// Wakes all tasks that wait for a Reply or a connection, with the reason in `status`.
    pub(crate) fn wake_pending_tasks(&self, status: Error) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_wake_pending_tasks(self.as_ptr(), status.to_errno()) }
    }

    /// Returns the time to wait before the next attempt to connect, in jiffies.
    pub(crate) fn reconnect_delay(&self) -> usize {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_reconnect_delay(self.as_ptr()) }
    }

    /// Doubles the delay, from `init` up to the transport's maximum. The caller has the send lock.
    pub(crate) fn reconnect_backoff(&self, init: usize) {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_reconnect_backoff(self.as_ptr(), init) }
    }

    /// Returns the delay that [`reconnect_backoff`](Self::reconnect_backoff) doubles, in jiffies.
    /// It is zero in a new transport.
    pub(crate) fn reestablish_timeout(&self) -> usize {
        // SAFETY: The transport is valid. The field is a single word, which SUNRPC reads without a
        // lock too.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).reestablish_timeout) }
    }

    /// Sets the delay that [`reconnect_backoff`](Self::reconnect_backoff) doubles; zero makes the
    /// next attempt immediate.
    pub(crate) fn set_reestablish_timeout(&self, jiffies: usize) {
        // SAFETY: The transport is valid. The field is a single word, which SUNRPC reads without a
        // lock too.
        unsafe { ptr::write_volatile(&raw mut (*self.as_ptr()).reestablish_timeout, jiffies) }
    }

    /// Makes the delay of the next connection no longer than `most` jiffies: the peer is there. If
    /// the present connection is known to work there is none, and it stays so.
    pub(crate) fn shorten_reestablish_timeout(&self, most: usize) {
        if self.reestablish_timeout() > most {
            self.set_reestablish_timeout(most);
        }
    }

    /// Removes the delay of the next connection, since the present one works. Does nothing while
    /// the connection is about to end, because a delay may have been set for the next one.
    pub(crate) fn forget_failures(&self) {
        // This is called for every Reply, so the word is written only if it changes.
        if self.reestablish_timeout() != 0 && !self.is_to_be_closed() {
            self.set_reestablish_timeout(0);
        }
    }

    /// Begins the credit accounting of a new connection. No request has a credit, and there is one
    /// credit until the peer grants more (RFC 8166 section 3.3.3).
    ///
    /// Requests that were sent on the old connection have to take a credit again. SUNRPC does not
    /// know that: it would give back a credit for each of them that the new count does not contain,
    /// and the count would fall below zero. `SendRqst::get_congestion` and the `release_request`
    /// operation therefore compare the epoch that begins here.
    pub(crate) fn reset_congestion(&self) {
        let guard = self.lock_transport();
        let rx = self.0.as_ptr();
        // SAFETY: The transport is valid, and `transport_lock`, which protects these fields, is
        // held.
        unsafe {
            (*rx).cong_epoch = (*rx).cong_epoch.wrapping_add(1);
            (*rx).xprt.cong = 0;
            (*rx).xprt.cwnd = 1 << sys::RPC_CWNDSHIFT;
        }
        drop(guard);
    }

    /// Returns the number of calls of [`reset_congestion`](Self::reset_congestion), modulo 2^32.
    /// The caller has the send lock, under which that is called too.
    pub(super) fn congestion_epoch(&self) -> u32 {
        // SAFETY: The transport is valid.
        unsafe { (*self.0.as_ptr()).cong_epoch }
    }

    /// Sets the number of credits that the peer grants. At least one is set, or nothing could ever
    /// be sent again.
    ///
    /// Call it before the Reply that brought the grant is completed: when the task of that Reply
    /// releases its request, SUNRPC looks at the window and wakes tasks that wait for it.
    pub(crate) fn set_credits(&self, credits: u32) {
        let guard = self.lock_transport();
        // SAFETY: The transport is valid, and `transport_lock`, which protects the field, is held.
        unsafe {
            (*self.as_ptr()).cwnd = (credits.max(1) as usize) << sys::RPC_CWNDSHIFT;
        }
        drop(guard);
    }

    /// Returns the number that tells one connection of the transport from the next.
    pub(crate) fn connect_cookie(&self) -> u32 {
        // SAFETY: The transport is valid. The field is a single word, which SUNRPC reads without a
        // lock too.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).connect_cookie) }
    }

    /// Notes that a connection begins or ends. The caller has the send lock, which keeps others
    /// from doing the same.
    pub(crate) fn bump_connect_cookie(&self) {
        let next = self.connect_cookie().wrapping_add(1);
        // SAFETY: The transport is valid. The field is a single word, which SUNRPC reads without a
        // lock too.
        unsafe { ptr::write_volatile(&raw mut (*self.as_ptr()).connect_cookie, next) }
    }

    /// Returns the number by which SUNRPC names the transport in sysfs. SUNRPC's debugfs has
    /// numbers of its own.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: The transport is valid, and the field does not change.
        unsafe { (*self.as_ptr()).id }
    }

    /// Returns the number of Calls that have a credit of the current connection.
    pub(crate) fn credits_in_use(&self) -> usize {
        // SAFETY: The transport is valid. The field is a single word, which SUNRPC reads without a
        // lock too.
        let cong = unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).cong) };
        cong >> sys::RPC_CWNDSHIFT
    }

    /// Returns the number of slots that SUNRPC was told of.
    pub(crate) fn max_reqs(&self) -> u32 {
        // SAFETY: The transport is valid, and the field does not change.
        unsafe { (*self.as_ptr()).max_reqs }
    }

    /// Returns whether the last reference to the transport is gone. Then SUNRPC destroys it as soon
    /// as it gets the send lock, and never gives it another user.
    pub(crate) fn is_abandoned(&self) -> bool {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_references(self.as_ptr()) == 0 }
    }

    /// Returns whether its client was made with this transport. A mount waits for the first
    /// connection of such a one. Others are made for a client that exists (`nconnect`, trunking),
    /// and connect when they get their first RPC.
    pub(crate) fn is_first(&self) -> bool {
        // SAFETY: The transport is valid. The field is a single word, which SUNRPC reads without a
        // lock too, and is written once, before the first RPC.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).main) }
    }

    /// Returns whether swap is carried over this transport. SUNRPC's count is negative if a swap
    /// file is given up that was there before the transport was added to its client.
    pub(crate) fn swapping(&self) -> bool {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_swapping(self.as_ptr()) > 0 }
    }

    /// Returns whether there is a service that answers reverse-direction Calls.
    pub(crate) fn has_bc_server(&self) -> bool {
        // SAFETY: The transport is valid.
        unsafe { sys::xprt_has_bc_server(self.as_ptr()) }
    }

    /// Counts a connection that was made, and the time it took. The caller has the send lock.
    pub(crate) fn count_connect(&self) {
        // SAFETY: The transport is valid, and the send lock keeps others from changing these
        // fields. They are single words, which SUNRPC reads without a lock.
        unsafe {
            let stat = &raw mut (*self.as_ptr()).stat;
            let start = (&raw const (*stat).connect_start).read_volatile();
            let spent = time::jiffies().wrapping_sub(start);
            for (sum, more) in [
                (&raw mut (*stat).connect_count, 1),
                (&raw mut (*stat).connect_time, spent),
            ] {
                sum.write_volatile(sum.read_volatile().wrapping_add(more));
            }
        }
    }

    /// Forgets the server's transport, which goes away. This one is for Calls to the client on its
    /// connection.
    pub(crate) fn forget_server(&self) {
        // SAFETY: The transport is valid. The field is a single word, which SUNRPC reads without a
        // lock too.
        unsafe { ptr::write_volatile(&raw mut (*self.as_ptr()).bc_xprt, ptr::null_mut()) }
    }

    /// Returns the address of the server. The caller has the send lock, under which it may change.
    pub(crate) fn address(&self) -> SockAddr<'_> {
        // SAFETY: The transport is valid.
        unsafe { SockAddr::copy(&raw const (*self.as_ptr()).addr) }
    }

    /// Returns the network namespace of the transport.
    pub(crate) fn net(&self) -> Net<'_> {
        // SAFETY: The transport holds a reference to the namespace as long as it lives, and the
        // result borrows the handle.
        unsafe { Net::from_raw((*self.as_ptr()).xprt_net) }
    }

    /// Returns the address of the server as text.
    pub(crate) fn display(&self) -> AddressText {
        // SAFETY: The transport is valid; its setup made the strings.
        unsafe { AddressText::of(self.as_ptr()) }
    }

    /// Returns the statistics that SUNRPC keeps of the transport.
    pub(crate) fn stats(&self) -> XprtStats {
        let xprt = self.as_ptr();
        // SAFETY: The transport is valid. The fields are single words, which SUNRPC reads without a
        // lock too; no reference to them is made.
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
        // SAFETY: The pointer is valid, and not used after this. Code that sees the zero may free
        // the memory; `Release` orders all uses of the handle before that.
        unsafe { Atomic::from_ptr(&raw mut (*self.0.as_ptr()).handles) }.store(0, Release);
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_sunrpc_handle)]
mod tests {
    use super::*;
    use kernel::types::Opaque;

    /// A connection that is lost after a Reply is replaced at once, whatever else the server has
    /// said since; another one is not.
    #[test]
    fn a_sign_of_life_delays_nothing() -> Result {
        let zeroed = pin_init::init_zeroed::<Opaque<sys::rpcrdma_xprt>>();
        let memory = KBox::init(zeroed, GFP_KERNEL)?;
        let rx = NonNull::new(memory.get()).ok_or(EINVAL)?;
        // SAFETY: The memory, which is zeroed, outlives the handle: it was made before. All that
        // is used of it are single words.
        let handle = unsafe { XprtHandle::new(rx) };
        for (before, after) in [(0, 0), (7, 7), (100, 100), (101, 100), (5000, 100)] {
            handle.set_reestablish_timeout(before);
            handle.shorten_reestablish_timeout(100);
            assert_eq!(handle.reestablish_timeout(), after);
        }
        handle.forget_failures();
        assert_eq!(handle.reestablish_timeout(), 0);
        Ok(())
    }
}
