// SPDX-License-Identifier: GPL-2.0

//! From C to [`Transport`]: the table of operations.

use super::{
    address,
    handle::XprtHandle,
    send::{
        BcReply,
        SendRqst, //
    },
    slot::Slot,
    task::RpcTask,
    transport::Transport, //
};
use crate::{
    kext::time::HZ,
    sys, //
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr, //
};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    sync::Arc, //
};

/// The shortest timeout of an RPC, in jiffies: a connection has to be given the chance to be made anew
/// within it.
const MIN_TIMEOUT: usize = 10 * HZ;

/// The operations of a transport.
///
/// All functions are called by SUNRPC for transports whose `ops` is [`Ops::TABLE`]. Those are made by
/// `class::setup` only, so they are the `xprt` of a `struct rpcrdma_xprt`, whose
/// `state` comes from [`Arc::into_raw`] of an `Arc<T>` and is valid until `release_callback`.
/// The safety comments below call that (1).
///
/// The requests of such a transport all come from `alloc_slot_callback` and `enqueue_bc_call`, so they
/// are the first field of a [`Slot`] of `T` that is lent. The safety comments call that (2).
pub(super) struct Ops<T>(PhantomData<T>);

/// The structure around a transport.
fn container(xprt: *mut sys::rpc_xprt) -> *mut sys::rpcrdma_xprt {
    // `xprt` is the first field.
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
        wait_for_reply_request: Some(sys::xprt_wait_for_reply_request_def),
        timer: Some(Self::timer_callback),
        release_request: Some(Self::release_request_callback),
        close: Some(Self::close_callback),
        destroy: Some(sys::rpcrdma_class_xprt_destroy),
        set_connect_timeout: Some(Self::set_connect_timeout_callback),
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

    /// The state of a transport, by the reference that the transport has.
    ///
    /// # Safety
    ///
    /// `xprt` has these operations, and is not released while the result is used.
    unsafe fn state(xprt: *mut sys::rpc_xprt) -> ManuallyDrop<Arc<T>> {
        // SAFETY: (1), and the caller guarantees the rest. The count stays with the transport.
        ManuallyDrop::new(unsafe { Arc::from_raw((*container(xprt)).state.cast()) })
    }

    /// Lends a slot of the transport's.
    fn lend_slot(this: &Arc<T>) -> Option<*mut sys::rpc_rqst> {
        Slot::lend(T::alloc_slot(this)?)
    }

    /// Gives free slots to tasks that wait for them, as long as there are both.
    ///
    /// A task that finds no slot joins the backlog and then calls this; a task that has freed a slot calls
    /// this afterwards. Each side writes before it reads, with a barrier in between, so that one of them
    /// sees the other, and no slot stays free while a task waits.
    ///
    /// # Safety
    ///
    /// As for [`state`](Self::state).
    unsafe fn serve_backlog(xprt: *mut sys::rpc_xprt, this: &Arc<T>) {
        loop {
            // SAFETY: No preconditions.
            unsafe { sys::smp_mb() };
            // SAFETY: The transport is valid; the length is a hint, read without the queue's lock.
            if unsafe { ptr::read_volatile(&raw const (*xprt).backlog.qlen) } == 0 {
                return;
            }
            let Some(rqst) = Self::lend_slot(this) else {
                return;
            };
            // SAFETY: The transport is valid. If there is a task, it gets the reference made by `lend`.
            if !unsafe { sys::xprt_wake_up_backlog(xprt, rqst) } {
                // SAFETY: Nobody took the pointer.
                T::free_slot(this, unsafe { Slot::take_back(rqst) });
            }
        }
    }

    /// `alloc_slot`: gives the task a slot, or puts it into the backlog.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and has no slot.
    unsafe extern "C" fn alloc_slot_callback(xprt: *mut sys::rpc_xprt, task: *mut sys::rpc_task) {
        // SAFETY: (1). The task holds a reference to the transport.
        let this = unsafe { Self::state(xprt) };
        if let Some(rqst) = Self::lend_slot(&this) {
            // SAFETY: The task is the caller's.
            unsafe {
                (*task).tk_rqstp = rqst;
                (*task).tk_status = 0;
            }
            return;
        }
        // SAFETY: The task is the caller's until it is in the backlog.
        unsafe {
            (*task).tk_status = EAGAIN.to_errno();
            sys::xprt_add_backlog_noncongested(xprt, task);
        }
        // SAFETY: (1).
        unsafe { Self::serve_backlog(xprt, &this) };
    }

    /// `free_slot`: hands the slot on, or gives it back to the transport.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; nobody uses `rqst` any more.
    unsafe extern "C" fn free_slot_callback(xprt: *mut sys::rpc_xprt, rqst: *mut sys::rpc_rqst) {
        // SAFETY: (1). The task that had the slot holds a reference to the transport.
        let this = unsafe { Self::state(xprt) };
        // SAFETY: If a task waits, it gets the slot as it is: zeroed by SUNRPC, and still lent.
        if unsafe { sys::xprt_wake_up_backlog(xprt, rqst) } {
            return;
        }
        // SAFETY: (2), and nobody uses it.
        T::free_slot(&this, unsafe { Slot::take_back(rqst) });
        // SAFETY: (1).
        unsafe { Self::serve_backlog(xprt, &this) };
    }

    /// `set_port`: rpcbind has found the port.
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn set_port_callback(xprt: *mut sys::rpc_xprt, port: c_ushort) {
        // SAFETY: (1). SUNRPC makes one lookup at a time.
        unsafe { address::set_port(container(xprt), port) }
    }

    /// `connect`: begins to connect.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and holds the send lock.
    unsafe extern "C" fn connect_callback(xprt: *mut sys::rpc_xprt, task: *mut sys::rpc_task) {
        // SAFETY: (1), and the task is valid during the call.
        let (this, task) = unsafe { (Self::state(xprt), RpcTask::from_raw(task)) };
        T::connect(&this, task);
    }

    /// `buf_alloc`: provides memory for Call and Reply.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and has a slot without buffers.
    unsafe extern "C" fn buf_alloc_callback(task: *mut sys::rpc_task) -> c_int {
        // SAFETY: The task has a slot.
        let rqst = unsafe { (*task).tk_rqstp };
        // SAFETY: (1) and (2).
        let (this, slot) = unsafe { (Self::state((*rqst).rq_xprt), Slot::<T::Call>::of(rqst)) };
        // SAFETY: SUNRPC asks for the buffers; the flags are those of the task's context.
        match unsafe { slot.provide_buffers(sys::rpc_task_gfp_mask()) } {
            Ok(0) => 0,
            Ok(grown) => {
                this.grown(grown);
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    /// `buf_free`: the task gives its buffers up.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and has a slot.
    unsafe extern "C" fn buf_free_callback(task: *mut sys::rpc_task) {
        // SAFETY: The task has a slot.
        let rqst = unsafe { (*task).tk_rqstp };
        // SAFETY: (1) and (2).
        let (this, slot) = unsafe { (Self::state((*rqst).rq_xprt), Slot::of(rqst)) };
        T::buf_free(&this, &slot);
    }

    /// `send_request`: sends a Call, or the Reply of a reverse-direction Call.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `rqst` is pinned by the caller, who holds the send lock.
    unsafe extern "C" fn send_request_callback(rqst: *mut sys::rpc_rqst) -> c_int {
        // SAFETY: (1) and (2).
        let (this, slot) = unsafe { (Self::state((*rqst).rq_xprt), Slot::<T::Call>::of(rqst)) };
        // SAFETY: The request is valid. Only those that `buf_alloc` was called for have such a buffer.
        let sent = if unsafe { (*rqst).rq_buffer.is_null() } {
            // SAFETY: The request is pinned until this returns.
            T::send_bc_reply(&this, unsafe { BcReply::new(&slot) })
        } else {
            // SAFETY: The request is pinned until this returns.
            T::send_request(&this, unsafe { SendRqst::new(&this, &slot) })
        };
        sent.map_or_else(|error| error.to_errno(), |()| 0)
    }

    /// `timer`: an RPC has waited for too long.
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn timer_callback(xprt: *mut sys::rpc_xprt, _task: *mut sys::rpc_task) {
        // SAFETY: (1).
        T::timer(&*unsafe { Self::state(xprt) });
    }

    /// `release_request`: gives the credit of a request back, unless it is one of a former connection
    /// (see [`XprtHandle::reset_congestion`]).
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `task` is valid and has a slot; the caller holds `transport_lock`.
    unsafe extern "C" fn release_request_callback(task: *mut sys::rpc_task) {
        // SAFETY: The task has a slot.
        let rqst = unsafe { (*task).tk_rqstp };
        // SAFETY: (1) and (2); the lock protects the epoch.
        unsafe {
            let slot = Slot::<T::Call>::of(rqst);
            if slot.cong_epoch() == (*container((*rqst).rq_xprt)).cong_epoch {
                sys::xprt_release_rqst_cong(task);
            } else {
                (*rqst).rq_cong = 0;
            }
        }
    }

    /// `close`: ends the connection.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; the caller holds the send lock, unless the transport is a `CallbackTransport`.
    pub(super) unsafe extern "C" fn close_callback(xprt: *mut sys::rpc_xprt) {
        // SAFETY: (1).
        T::close(&*unsafe { Self::state(xprt) });
    }

    /// The first part of `destroy`, called by `rpcrdma_class_xprt_destroy`. Returns whether the memory of the
    /// transport may be freed.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; nothing else is called for `xprt` any more.
    pub(super) unsafe extern "C" fn release_callback(xprt: *mut sys::rpc_xprt) -> bool {
        let rx = container(xprt);
        // SAFETY: (1). This is the end: the reference that the transport had is taken from it.
        let this: Arc<T> = unsafe { Arc::from_raw((*rx).state.cast()) };
        T::destroy(&this);
        drop(this);
        // SAFETY: The transport is valid.
        if !unsafe { XprtHandle::is_gone(rx) } {
            // Somebody still has a reference to the state. With the memory stays the reference to the module, so
            // that its code stays too.
            kernel::pr_err_once!("a transport outlives its end; its memory is lost\n");
            kernel::warn_on!(true);
            return false;
        }
        // SAFETY: The transport is valid and nobody uses it.
        unsafe { address::free_strings(rx) };
        true
    }

    /// `set_connect_timeout`: somebody wants to learn earlier that a server does not answer. Timeouts become
    /// shorter only.
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
        // SAFETY: (1); `transport_lock` protects the timeouts against others who set them.
        unsafe {
            sys::spin_lock(&raw mut (*xprt).transport_lock);
            if connect < (*xprt).connect_timeout {
                let initial = connect.max(MIN_TIMEOUT);
                // The rest of it is zero, as in the default.
                (*rx).timeout.to_initval = initial;
                (*rx).timeout.to_maxval = initial;
                (*xprt).timeout = &raw const (*rx).timeout;
                (*xprt).connect_timeout = connect;
            }
            if reconnect < (*xprt).max_reconnect_timeout {
                (*xprt).max_reconnect_timeout = reconnect;
            }
            sys::spin_unlock(&raw mut (*xprt).transport_lock);
        }
    }

    /// `print_stats`: the transport's line of mountstats.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `seq` is valid.
    unsafe extern "C" fn print_stats_callback(xprt: *mut sys::rpc_xprt, seq: *mut sys::seq_file) {
        // SAFETY: (1), and the caller guarantees the rest.
        let (this, seq) = unsafe { (Self::state(xprt), SeqFile::from_raw(seq)) };
        this.print_stats(seq);
    }

    /// `enable_swap`: there is nothing to prepare.
    ///
    /// # Safety
    ///
    /// None.
    unsafe extern "C" fn enable_swap_callback(_xprt: *mut sys::rpc_xprt) -> c_int {
        0
    }

    /// `disable_swap`: there is nothing to undo.
    ///
    /// # Safety
    ///
    /// None.
    unsafe extern "C" fn disable_swap_callback(_xprt: *mut sys::rpc_xprt) {}

    /// `inject_disconnect`: a test wants the connection to be lost.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; the caller holds the send lock.
    unsafe extern "C" fn inject_disconnect_callback(xprt: *mut sys::rpc_xprt) {
        // SAFETY: (1).
        T::inject_disconnect(&*unsafe { Self::state(xprt) });
    }

    /// `bc_setup`: prepares for reverse-direction Calls.
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn bc_setup_callback(xprt: *mut sys::rpc_xprt, requests: c_uint) -> c_int {
        // SAFETY: (1).
        match T::bc_setup(&*unsafe { Self::state(xprt) }, requests) {
            Ok(()) => 0,
            Err(error) => error.to_errno(),
        }
    }

    /// `bc_maxpayload`: the largest reverse-direction message.
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn bc_maxpayload_callback(xprt: *mut sys::rpc_xprt) -> usize {
        // SAFETY: (1).
        unsafe { Self::state(xprt) }.bc_maxpayload()
    }

    /// `bc_num_slots`: how many reverse-direction Calls at a time.
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn bc_num_slots_callback(xprt: *mut sys::rpc_xprt) -> c_uint {
        // SAFETY: (1).
        unsafe { Self::state(xprt) }.bc_num_slots()
    }

    /// `bc_free_rqst`: a reverse-direction Call is done with.
    ///
    /// # Safety
    ///
    /// See [`Ops`]; `rqst` comes from `enqueue_bc_call`, and nobody uses it any more.
    unsafe extern "C" fn bc_free_rqst_callback(rqst: *mut sys::rpc_rqst) {
        // SAFETY: (2).
        let xprt = unsafe { (*rqst).rq_xprt };
        {
            // SAFETY: (1). The request holds a reference to the transport, which is given back below.
            let this = unsafe { Self::state(xprt) };
            // SAFETY: (2), and nobody uses it.
            T::bc_free_rqst(&this, unsafe { Slot::take_back(rqst) });
        }
        // SAFETY: `xprt_enqueue_bc_request` took this reference.
        unsafe { sys::xprt_put(xprt) };
    }

    /// `bc_destroy`: there is no service for reverse-direction Calls any more.
    ///
    /// # Safety
    ///
    /// See [`Ops`].
    unsafe extern "C" fn bc_destroy_callback(xprt: *mut sys::rpc_xprt, _requests: c_uint) {
        // SAFETY: (1).
        T::bc_destroy(&*unsafe { Self::state(xprt) });
    }
}
