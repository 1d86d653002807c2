// SPDX-License-Identifier: GPL-2.0

//! The table of operations by which SUNRPC calls a [`Transport`].

use super::{
    address::{
        self,
        AddressText, //
    },
    handle::{
        lock,
        XprtHandle, //
    },
    send::{
        BcReply,
        SendRqst, //
    },
    slot::Slot,
    task::RpcTask,
    transport::Transport, //
};
use crate::kext::prelude::*;
use crate::{
    kext::{
        barrier::smp_mb,
        time::HZ, //
    },
    sys, //
};
use core::{
    mem::ManuallyDrop,
    ptr, //
};
use kernel::seq_file::SeqFile;

/// The shortest timeout of an RPC, in jiffies. It leaves time to make a new connection.
const MIN_TIMEOUT: usize = 10 * HZ;

/// The operations of a transport whose state is a `T`.
///
/// SUNRPC calls all of these functions, for transports whose `ops` is [`Ops::TABLE`]. The safety
/// comments below use two facts:
///
/// - *State*: such a transport is made by `class::setup` only. So it is the `xprt` of a `struct
///   rpcrdma_xprt`, whose `state` comes from [`Arc::into_raw`] of an `Arc<T>` and is valid until
///   `release_callback`.
/// - *Request*: every request of such a transport comes from `alloc_slot_callback` or
///   `enqueue_bc_call`. So it is the first field of a [`Slot`] of `T`, and that slot is lent.
pub(super) struct Ops<T>(PhantomData<T>);

/// Returns the structure around an `rpc_xprt`.
fn container(xprt: *mut sys::rpc_xprt) -> *mut sys::rpcrdma_xprt {
    // `xprt` is the first field of the structure.
    xprt.cast()
}

impl<T: Transport> Ops<T> {
    /// The table.
    pub(super) const TABLE: sys::rpc_xprt_ops = sys::rpc_xprt_ops {
        reserve_xprt: Some(sys::xprt_reserve_xprt_cong),
        release_xprt: Some(sys::xprt_release_xprt_cong),
        alloc_slot: Some(Self::alloc_slot_callback),
        free_slot: Some(Self::free_slot_callback),
        rpcbind: Some(sys::rpcb_getport_async),
        set_port: Some(Self::set_port_callback),
        connect: Some(Self::connect_callback),
        buf_alloc: Some(Self::buf_alloc_callback),
        buf_free: Some(Self::buf_free_callback),
        send_request: Some(Self::send_request_callback),
        wait_for_reply_request: Some(Self::wait_for_reply_request_callback),
        timer: Some(Self::timer_callback),
        release_request: Some(Self::release_request_callback),
        close: Some(Self::close_callback),
        destroy: Some(sys::rpcrdma_class_xprt_destroy),
        set_connect_timeout: Some(Self::set_connect_timeout_callback),
        get_srcaddr: Some(Self::get_srcaddr_callback),
        get_srcport: Some(Self::get_srcport_callback),
        print_stats: Some(Self::print_stats_callback),
        enable_swap: Some(Self::enable_swap_callback),
        disable_swap: Some(Self::disable_swap_callback),
        inject_disconnect: Some(Self::inject_disconnect_callback),
        bc_setup: Some(Self::bc_setup_callback),
        bc_maxpayload: Some(Self::bc_maxpayload_callback),
        bc_num_slots: Some(Self::bc_num_slots_callback),
        bc_free_rqst: Some(Self::bc_free_rqst_callback),
        bc_destroy: Some(Self::bc_destroy_callback),
        ..pin_init::zeroed()
    };

    /// Returns the state of a transport, by the reference that the transport has.
    ///
    /// # Safety
    ///
    /// `xprt` has these operations, and is not released while the result is used.
    unsafe fn state(xprt: *mut sys::rpc_xprt) -> ManuallyDrop<Arc<T>> {
        // SAFETY: The transport has these operations, so `state` is a valid `Arc<T>` (*State*, see
        // [`Ops`]). The caller guarantees that it stays valid. The count stays with the transport.
        ManuallyDrop::new(unsafe { Arc::from_raw((*container(xprt)).state.cast()) })
    }

    /// Lends a free slot of the transport to SUNRPC.
    fn lend_slot(this: &Arc<T>) -> Option<*mut sys::rpc_rqst> {
        Slot::lend(T::alloc_slot(this)?)
    }

    /// Gives free slots to tasks that wait for them, as long as there are both.
    ///
    /// A task that finds no slot joins the backlog and then calls this. A task that has freed a
    /// slot calls this afterwards. Each of them writes before it reads, with a barrier in between,
    /// so at least one of them sees what the other has written, and no slot stays free while a task
    /// waits.
    ///
    /// # Safety
    ///
    /// `xprt` has these operations, is not released during the call, and has the state `this`.
    unsafe fn serve_backlog(xprt: *mut sys::rpc_xprt, this: &Arc<T>) {
        loop {
            smp_mb();
            // SAFETY: The caller guarantees that the transport is valid. The length is a hint, read
            // without the queue's lock.
            if unsafe { ptr::read_volatile(&raw const (*xprt).backlog.qlen) } == 0 {
                return;
            }
            let Some(rqst) = Self::lend_slot(this) else {
                return;
            };
            // SAFETY: The caller guarantees that the transport is valid. If a task waits, it gets
            // the reference made by `lend`.
            if !unsafe { sys::xprt_wake_up_backlog(xprt, rqst) } {
                // SAFETY: The pointer comes from `lend`, and no task took it.
                T::free_slot(this, unsafe { Slot::take_back(rqst) });
            }
        }
    }

    /// Gives the task a slot, or puts it into the backlog (`alloc_slot`).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and has no slot.
    unsafe extern "C" fn alloc_slot_callback(xprt: *mut sys::rpc_xprt, task: *mut sys::rpc_task) {
        // SAFETY: The transport has these operations. The task holds a reference to it, so it is
        // not released during the call.
        let this = unsafe { Self::state(xprt) };
        if let Some(rqst) = Self::lend_slot(&this) {
            // SAFETY: The caller guarantees that the task is valid; it is the current thread's, so
            // nothing else writes its fields.
            unsafe {
                (*task).tk_rqstp = rqst;
                (*task).tk_status = 0;
            }
            return;
        }
        // SAFETY: The caller guarantees that the task is valid; it is the current thread's until it
        // is in the backlog.
        unsafe {
            (*task).tk_status = EAGAIN.to_errno();
            sys::xprt_add_backlog_noncongested(xprt, task);
        }
        // SAFETY: The transport has these operations, and SUNRPC does not release it during the
        // call.
        unsafe { Self::serve_backlog(xprt, &this) };
    }

    /// Hands the slot to the next task, or gives it back to the transport (`free_slot`).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `rqst` is not used any more.
    unsafe extern "C" fn free_slot_callback(xprt: *mut sys::rpc_xprt, rqst: *mut sys::rpc_rqst) {
        // SAFETY: The transport has these operations. The task that had the slot holds a reference
        // to it, so it is not released during the call.
        let this = unsafe { Self::state(xprt) };
        // SAFETY: The caller guarantees that the transport is valid. If a task waits, it gets the
        // slot as it is: zeroed by SUNRPC, and still lent.
        if unsafe { sys::xprt_wake_up_backlog(xprt, rqst) } {
            return;
        }
        // SAFETY: The request comes from `lend` of a slot of `T` (*Request*), and the caller
        // guarantees that it is not used any more.
        T::free_slot(&this, unsafe { Slot::take_back(rqst) });
        // SAFETY: The transport has these operations, and SUNRPC does not release it during the
        // call.
        unsafe { Self::serve_backlog(xprt, &this) };
    }

    /// Sets the port that rpcbind has found (`set_port`).
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn set_port_callback(xprt: *mut sys::rpc_xprt, port: c_ushort) {
        // SAFETY: The transport has these operations, so it is in a valid `struct rpcrdma_xprt`
        // (*State*). SUNRPC makes one lookup at a time.
        unsafe { address::set_port(container(xprt), port) }
    }

    /// Starts to connect (`connect`).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and holds the send lock.
    unsafe extern "C" fn connect_callback(xprt: *mut sys::rpc_xprt, task: *mut sys::rpc_task) {
        // SAFETY: The transport has these operations, and the task, which is valid during the call,
        // holds a reference to it.
        let (this, task) = unsafe { (Self::state(xprt), RpcTask::from_raw(task)) };
        T::connect(&this, task);
    }

    /// Provides memory for Call and Reply (`buf_alloc`).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and has a slot without buffers.
    unsafe extern "C" fn buf_alloc_callback(task: *mut sys::rpc_task) -> c_int {
        // SAFETY: The caller guarantees that the task is valid and has a slot.
        let rqst = unsafe { (*task).tk_rqstp };
        // SAFETY: The slot is one of `T` (*Request*). Its transport has these operations, and is
        // not released while the request is in use.
        let (this, slot) = unsafe { (Self::state((*rqst).rq_xprt), Slot::<T::Call>::of(rqst)) };
        // SAFETY: The slot is lent, and SUNRPC asks for the buffers on behalf of its task. The
        // flags are those of the task's context.
        let grown = unsafe { slot.provide_buffers(sys::rpc_task_gfp_mask()) };
        from_result(|| {
            this.grown(grown?);
            Ok(0)
        })
    }

    /// Takes the buffers from the task, which gives them up (`buf_free`). When this returns no
    /// device uses the memory of the RPC.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and has a slot.
    unsafe extern "C" fn buf_free_callback(task: *mut sys::rpc_task) {
        // SAFETY: The caller guarantees that the task is valid and has a slot.
        let rqst = unsafe { (*task).tk_rqstp };
        // SAFETY: The slot is one of `T` (*Request*). Its transport has these operations, and is
        // not released while the request is in use.
        let (this, slot) = unsafe { (Self::state((*rqst).rq_xprt), Slot::of(rqst)) };
        T::buf_free(&this, &slot);
        if slot.leases().any() {
            // SAFETY: The transport is valid; its setup made the strings.
            let server = unsafe { AddressText::of((*rqst).rq_xprt) };
            kernel::pr_err_once!(
                "BUG: server {server}: RPC freed while the device still uses its memory; waiting \
                 for the device; please report\n"
            );
            slot.leases().wait();
        }
        // SAFETY: The slot is lent, the task gives its buffers up, and no device uses the memory.
        unsafe { slot.free_reply_buffer() };
    }

    /// Sends a Call, or the Reply of a reverse-direction Call (`send_request`).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; the caller has pinned `rqst` and holds the send lock.
    unsafe extern "C" fn send_request_callback(rqst: *mut sys::rpc_rqst) -> c_int {
        // SAFETY: The slot is one of `T` (*Request*). Its transport has these operations, and is
        // not released while the request is in use.
        let (this, slot) = unsafe { (Self::state((*rqst).rq_xprt), Slot::<T::Call>::of(rqst)) };
        // SAFETY: The request is valid, as the caller has pinned it. Only a request that
        // `buf_alloc` was called for, which is that of a Call, has such a buffer.
        let sent = if unsafe { (*rqst).rq_buffer.is_null() } {
            // SAFETY: The slot is lent (*Request*), and the request is pinned until this operation
            // returns.
            T::send_bc_reply(&this, unsafe { BcReply::new(&slot) })
        } else {
            // An error of a former attempt may be left, if its task did not fetch it. It says
            // nothing about this attempt.
            slot.take_unsent();
            // SAFETY: The slot is lent (*Request*), and the request is pinned until this operation
            // returns.
            T::send_request(&this, unsafe { SendRqst::new(&this, &slot) })
        };
        sent.map_or_else(|error| error.to_errno(), |()| 0)
    }

    /// Puts a task to sleep until its Reply has come (`wait_for_reply_request`). A task whose Call
    /// was not sent, see [`SendRqst::fail`], does not sleep: it ends with the error.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and has a slot; the caller is the task and holds `queue_lock`.
    unsafe extern "C" fn wait_for_reply_request_callback(task: *mut sys::rpc_task) {
        // SAFETY: The task has a slot of `T` (*Request*). The caller holds `queue_lock`, which
        // orders this after the thread that sent the Call, see `Slot::unsent`.
        let slot = unsafe { Slot::<T::Call>::of((*task).tk_rqstp) };
        let unsent = slot.take_unsent();
        if unsent == 0 {
            // SAFETY: The caller is the task and holds `queue_lock`, which is what the function
            // demands.
            unsafe { sys::xprt_wait_for_reply_request_def(task) };
        } else {
            if unsent == EAGAIN.to_errno() {
                // SAFETY: The task has the slot, whose transport has these operations and is not
                // released meanwhile.
                unsafe {
                    let state = Self::state((*(*task).tk_rqstp).rq_xprt);
                    slot.seem_lost(state.xprt().connect_cookie());
                }
            }
            // SAFETY: The task is the caller's. `call_status` reads the field next.
            unsafe { (*task).tk_status = unsent };
        }
    }

    /// Handles the timeout of an RPC (`timer`), unless its Call was sent on a former connection.
    /// When this returns no device uses the memory of the RPC.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and has a slot; the caller is the task, which was woken.
    unsafe extern "C" fn timer_callback(xprt: *mut sys::rpc_xprt, task: *mut sys::rpc_task) {
        // SAFETY: The transport has these operations, and SUNRPC does not release it during the
        // call.
        let this = unsafe { Self::state(xprt) };
        // SAFETY: The task has a slot. Its cookie was written by the thread that sent the Call,
        // before the task went to sleep.
        let cookie = unsafe { (*(*task).tk_rqstp).rq_connect_cookie };
        // Many RPCs may time out at once. If the first of them has ended the connection, the others
        // say nothing about the next one.
        if cookie == this.xprt().connect_cookie() {
            T::timer(&this);
        }
        // SAFETY: The slot is one of `T`, and the task has it.
        let slot = unsafe { Slot::<T::Call>::of((*task).tk_rqstp) };
        // The task encodes the Call anew now. With krb5p that frees pages of the former encoding.
        // If the Reply is here, the thread that takes it in fences the regions meanwhile.
        if slot.leases().any() {
            T::buf_free(&this, &slot);
            slot.leases().wait();
        }
    }

    /// Gives the credit of a request back (`release_request`), unless it is one of a former
    /// connection (see [`XprtHandle::reset_congestion`]).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and has a slot; the caller holds `transport_lock`.
    unsafe extern "C" fn release_request_callback(task: *mut sys::rpc_task) {
        // SAFETY: The caller guarantees that the task is valid and has a slot.
        let rqst = unsafe { (*task).tk_rqstp };
        // SAFETY: The slot is one of `T` (*Request*), and its transport, to which the task holds a
        // reference, is in a `struct rpcrdma_xprt` (*State*). The caller holds `transport_lock`,
        // which protects the epoch.
        unsafe {
            let slot = Slot::<T::Call>::of(rqst);
            if slot.cong_epoch() == (*container((*rqst).rq_xprt)).cong_epoch {
                sys::xprt_release_rqst_cong(task);
            } else {
                (*rqst).rq_cong = 0;
            }
        }
    }

    /// Ends the connection (`close`).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; the caller holds the send lock, unless the transport is a `CallbackTransport`.
    pub(super) unsafe extern "C" fn close_callback(xprt: *mut sys::rpc_xprt) {
        // SAFETY: The transport has these operations, and SUNRPC does not release it during the
        // call.
        T::close(&*unsafe { Self::state(xprt) });
    }

    /// Ends the state of a transport: the first part of `destroy`, called by
    /// `rpcrdma_class_xprt_destroy`. Returns whether the memory of the transport may be freed.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; nothing else is called for `xprt` any more.
    pub(super) unsafe extern "C" fn release_callback(xprt: *mut sys::rpc_xprt) -> bool {
        let rx = container(xprt);
        // SAFETY: The transport has these operations, so `state` comes from `Arc::into_raw` of an
        // `Arc<T>` (*State*). Nothing else is called for it any more, so the reference that it had
        // is taken from it here.
        let this: Arc<T> = unsafe { Arc::from_raw((*rx).state.cast()) };
        T::destroy(&this);
        // If this is the last reference, no other thread is still dropping parts of the state.
        let last = Arc::into_unique_or_drop(this).map(drop).is_some();
        // SAFETY: The caller guarantees that the transport is valid.
        if !last || !unsafe { XprtHandle::is_gone(rx) } {
            // There is still a reference to the state, or its handle. The memory stays, and with it
            // the reference to the module, so that its code stays too.
            // SAFETY: The transport is valid; its setup made the strings.
            let server = unsafe { AddressText::of(xprt) };
            kernel::pr_err_once!(
                "BUG: server {server}: transport still referenced after its end; leaking it, the \
                 module stays loaded; please report\n"
            );
            kernel::warn_on!(true);
            return false;
        }
        // SAFETY: The transport is valid, and neither SUNRPC nor the state, which is gone, uses it
        // any more.
        unsafe { address::free_strings(rx) };
        true
    }

    /// Shortens the timeouts, so that the upper layer learns earlier that a server does not answer
    /// (`set_connect_timeout`). They never become longer.
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn set_connect_timeout_callback(
        xprt: *mut sys::rpc_xprt,
        connect: c_ulong,
        reconnect: c_ulong,
    ) {
        let rx = container(xprt);
        // SAFETY: The transport is in a valid `struct rpcrdma_xprt` (*State*). `transport_lock`
        // protects the timeouts against other calls of this function.
        unsafe {
            let guard = lock(&raw mut (*xprt).transport_lock);
            if connect < (*xprt).connect_timeout {
                let initial = connect.max(MIN_TIMEOUT);
                // The other fields are zero, as in `DEFAULT_TIMEOUT`.
                (*rx).timeout.to_initval = initial;
                (*rx).timeout.to_maxval = initial;
                (*xprt).timeout = &raw const (*rx).timeout;
                (*xprt).connect_timeout = connect;
            }
            if reconnect < (*xprt).max_reconnect_timeout {
                (*xprt).max_reconnect_timeout = reconnect;
            }
            drop(guard);
        }
    }

    /// Writes the address of this end for sysfs, as a string (`get_srcaddr`). Returns its length,
    /// or zero if there is no connection.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `buf` has room for `len` octets.
    unsafe extern "C" fn get_srcaddr_callback(
        xprt: *mut sys::rpc_xprt,
        buf: *mut c_char,
        len: usize,
    ) -> c_int {
        // SAFETY: The transport has these operations, and the caller keeps it from being released.
        let local = unsafe { Self::state(xprt) }.local_address();
        let text = local.as_ref().map_or("", AddressText::address).as_bytes();
        let text = text.get(..len.saturating_sub(1)).unwrap_or(text);
        if len > 0 {
            let to = buf.cast::<u8>();
            // SAFETY: The text and the zero behind it are no longer than the buffer, which the
            // caller guarantees to be valid; the text is in a variable of our own.
            unsafe {
                ptr::copy_nonoverlapping(text.as_ptr(), to, text.len());
                to.add(text.len()).write(0);
            }
        }
        // An address is short.
        text.len() as c_int
    }

    /// Returns the port of this end for sysfs, or zero if there is no connection (`get_srcport`).
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn get_srcport_callback(xprt: *mut sys::rpc_xprt) -> u16 {
        // SAFETY: The transport has these operations, and the caller keeps it from being released.
        let local = unsafe { Self::state(xprt) }.local_address();
        local
            .and_then(|local| local.port().parse().ok())
            .unwrap_or(0)
    }

    /// Prints the transport's line of mountstats (`print_stats`).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `seq` is valid.
    unsafe extern "C" fn print_stats_callback(xprt: *mut sys::rpc_xprt, seq: *mut sys::seq_file) {
        // SAFETY: The transport has these operations, and the caller keeps it from being released;
        // it guarantees that `seq` is valid.
        let (this, seq) = unsafe { (Self::state(xprt), SeqFile::from_raw(seq)) };
        this.print_stats(seq);
    }

    /// Counts a swap file that is used over this transport (`enable_swap`). SUNRPC leaves it to the
    /// transport to count them, and reads the count when a task gets the send lock.
    /// [`XprtHandle::swapping`] reads it when a connection is made.
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn enable_swap_callback(xprt: *mut sys::rpc_xprt) -> c_int {
        // SAFETY: The caller guarantees that the transport is valid.
        unsafe { sys::xprt_swapper_inc(xprt) };
        0
    }

    /// Takes a swap file off the count (`disable_swap`).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `enable_swap_callback` was called before, for this file.
    unsafe extern "C" fn disable_swap_callback(xprt: *mut sys::rpc_xprt) {
        // SAFETY: The caller guarantees that the transport is valid.
        unsafe { sys::xprt_swapper_dec(xprt) };
    }

    /// Ends the connection for a test (`inject_disconnect`).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; the caller holds the send lock.
    unsafe extern "C" fn inject_disconnect_callback(xprt: *mut sys::rpc_xprt) {
        // SAFETY: The transport has these operations, and SUNRPC does not release it during the
        // call.
        T::inject_disconnect(&*unsafe { Self::state(xprt) });
    }

    /// Prepares for reverse-direction Calls (`bc_setup`).
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn bc_setup_callback(xprt: *mut sys::rpc_xprt, requests: c_uint) -> c_int {
        // SAFETY: The transport has these operations, and SUNRPC does not release it during the
        // call.
        let this = unsafe { Self::state(xprt) };
        from_result(|| T::bc_setup(&this, requests).map(|()| 0))
    }

    /// Returns the size of the largest reverse-direction message (`bc_maxpayload`).
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn bc_maxpayload_callback(xprt: *mut sys::rpc_xprt) -> usize {
        // SAFETY: The transport has these operations, and SUNRPC does not release it during the
        // call.
        unsafe { Self::state(xprt) }.bc_maxpayload()
    }

    /// Returns the number of reverse-direction Calls at a time (`bc_num_slots`).
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn bc_num_slots_callback(xprt: *mut sys::rpc_xprt) -> c_uint {
        // SAFETY: The transport has these operations, and SUNRPC does not release it during the
        // call.
        unsafe { Self::state(xprt) }.bc_num_slots()
    }

    /// Takes the slot of a reverse-direction Call back (`bc_free_rqst`).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `rqst` comes from `enqueue_bc_call`, and is not used any more.
    unsafe extern "C" fn bc_free_rqst_callback(rqst: *mut sys::rpc_rqst) {
        // SAFETY: The request is that of a lent slot (*Request*), and so valid.
        let xprt = unsafe { (*rqst).rq_xprt };
        {
            // SAFETY: The transport has these operations. The request holds a reference to it,
            // which is given back below.
            let this = unsafe { Self::state(xprt) };
            // SAFETY: The request comes from `lend` of a slot of `T` (*Request*), and the caller
            // guarantees that it is not used any more.
            T::bc_free_rqst(&this, unsafe { Slot::take_back(rqst) });
        }
        // SAFETY: `xprt_enqueue_bc_request` took this reference.
        unsafe { sys::xprt_put(xprt) };
    }

    /// Tells the transport that there is no service for reverse-direction Calls any more
    /// (`bc_destroy`).
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn bc_destroy_callback(xprt: *mut sys::rpc_xprt, _requests: c_uint) {
        // SAFETY: The transport has these operations, and SUNRPC does not release it during the
        // call.
        T::bc_destroy(&*unsafe { Self::state(xprt) });
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_sunrpc_ops)]
mod tests {
    use super::*;
    use crate::client::Client;
    use kernel::types::Opaque;

    /// A transport carries swap until both swap files are given up.
    #[test]
    fn swap_files_are_counted() -> Result {
        let zeroed = pin_init::init_zeroed::<Opaque<sys::rpc_xprt>>();
        let xprt = KBox::init(zeroed, GFP_KERNEL)?;
        let swapping = || {
            // SAFETY: The count is zeroed memory, as in a transport that SUNRPC allocates.
            unsafe { sys::xprt_swapping(xprt.get()) }
        };
        assert_eq!(swapping(), 0);
        // SAFETY: These functions use the count of the transport only, which is valid.
        unsafe {
            assert_eq!(Ops::<Client>::enable_swap_callback(xprt.get()), 0);
            assert_eq!(Ops::<Client>::enable_swap_callback(xprt.get()), 0);
            assert_eq!(swapping(), 2);
            Ops::<Client>::disable_swap_callback(xprt.get());
            assert_eq!(swapping(), 1);
            Ops::<Client>::disable_swap_callback(xprt.get());
        }
        assert_eq!(swapping(), 0);
        Ok(())
    }
}
