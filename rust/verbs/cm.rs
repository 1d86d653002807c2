// SPDX-License-Identifier: GPL-2.0

//! The active side of the RDMA connection manager.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

use crate::kext::errno::{
    ECONNABORTED, ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, ENOTCONN, ESHUTDOWN,
};
use crate::observe::trace;
use crate::sunrpc::{Net, SockAddr};
use crate::sys;
use crate::verbs::device::{self, DeviceLimits};
use core::ffi::CStr;
use core::ptr::{self, NonNull};
use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full};
use kernel::sync::{new_condvar, new_mutex, Arc, CondVar, CondVarTimeoutResult, Mutex};
use kernel::time::{msecs_to_jiffies, Msecs};

/// How much private data a CM message carries to us at most: what InfiniBand leaves of it to the passive side's
/// answer.
pub(crate) const MAX_PRIVATE_DATA: usize = 196;

/// How often the CM sends again before it gives up on a peer that does not answer. Few, so that a peer that
/// has moved is noticed soon: SUNRPC does the rest.
const RETRY_COUNT: u8 = 6;

/// Told when an established connection is lost.
pub(crate) trait ConnectionEvents: Send + Sync + 'static {
    /// The peer disconnected, the address changed or the device goes away. Runs in the CM's handler: it must
    /// not wait for the connection's teardown.
    fn lost(&self);

    /// By what number trace events name the connection.
    fn number(&self) -> u32;
}

/// What the peer said when it accepted.
pub(crate) struct Accepted {
    /// The private data, and zeroes behind it.
    data: [u8; MAX_PRIVATE_DATA],
    /// How long it is.
    len: usize,
}

impl Accepted {
    /// The private data of the peer. InfiniBand pads it with zeroes.
    pub(crate) fn private_data(&self) -> &[u8] {
        self.data.get(..self.len).unwrap_or(&[])
    }
}

/// How far a connection has come.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per connection, and an event can't wait for memory"
)]
enum Phase {
    /// A step was begun, its event has not come.
    Waiting,
    /// The step was done.
    Done,
    /// The peer accepted. The data is taken by who waits.
    Established(Option<Accepted>),
    /// The step failed, or the connection is lost.
    Failed(Error),
}

/// What the CM's handler works on.
#[pin_data]
pub(super) struct Context<H: ConnectionEvents> {
    /// How far the connection has come.
    #[pin]
    phase: Mutex<Phase>,
    /// Signaled when `phase` has changed.
    #[pin]
    changed: CondVar,
    /// Set once the loss was reported, or once nobody wants to hear of it any more.
    reported: Atomic<bool>,
    /// Who is told.
    handler: Arc<H>,
}

impl<H: ConnectionEvents> Context<H> {
    /// Reports that the connection is lost, once.
    pub(super) fn lost(&self) {
        if !self.reported.xchg(true, Full) {
            trace::lost(self.number());
            self.handler.lost();
        }
    }

    /// From now on no loss is reported: the owner ends the connection itself.
    pub(super) fn silence(&self) {
        self.reported.xchg(true, Full);
    }

    /// By what number trace events name the connection.
    pub(super) fn number(&self) -> u32 {
        self.handler.number()
    }

    /// Who handles the events of this connection.
    pub(super) fn handler(&self) -> &Arc<H> {
        &self.handler
    }

    /// The step that is waited for is done.
    fn set(&self, phase: Phase) {
        let mut now = self.phase.lock();
        // A failure is final: a step that another thread is just beginning must not hide it.
        if !matches!(*now, Phase::Failed(_)) {
            *now = phase;
        }
        drop(now);
        self.changed.notify_all();
    }

    /// A failure ends the step that is waited for, or the connection.
    fn fail(&self, error: Error) {
        let mut now = self.phase.lock();
        let established = matches!(*now, Phase::Established(_));
        let first = !matches!(*now, Phase::Failed(_));
        if first {
            *now = Phase::Failed(error);
        }
        drop(now);
        self.changed.notify_all();
        if established {
            self.lost();
        }
    }
}

/// A CM id of the active side, with its handler.
///
/// # Invariants
///
/// `id` is an id whose context is `context`, not yet destroyed.
pub(crate) struct CmId<H: ConnectionEvents> {
    /// The C object.
    id: NonNull<sys::rdma_cm_id>,
    /// What the handler works on.
    context: Arc<Context<H>>,
}

// SAFETY: The CM takes its own locks; the methods that need exclusion take `&mut self`.
unsafe impl<H: ConnectionEvents> Send for CmId<H> {}

impl<H: ConnectionEvents> CmId<H> {
    /// Creates an id in `net`, whose events go to `handler`.
    ///
    /// # Errors
    ///
    /// What the CM reports, `ENOMEM` above all.
    pub(crate) fn new(net: Net<'_>, handler: Arc<H>) -> Result<Self> {
        let context = Arc::pin_init(
            try_pin_init!(Context {
                phase <- new_mutex!(Phase::Waiting, "rpcrdma::CmId::phase"),
                changed <- new_condvar!("rpcrdma::CmId::changed"),
                reported: Atomic::new(false),
                handler,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: `net` is live; the context outlives the id, which `Drop` destroys before it lets go of the
        // context.
        let id = from_err_ptr(unsafe {
            sys::rdma_create_id(
                net.as_ptr(),
                Some(Self::event_callback),
                Arc::as_ptr(&context).cast_mut().cast(),
                sys::rdma_ucm_port_space_RDMA_PS_TCP,
                sys::ib_qp_type_IB_QPT_RC,
            )
        })?;
        Ok(Self {
            id: NonNull::new(id).ok_or(ENOMEM)?,
            context,
        })
    }

    /// # Safety
    ///
    /// Called by the CM with an id made by `new`, which it keeps during the call.
    unsafe extern "C" fn event_callback(
        id: *mut sys::rdma_cm_id,
        event: *mut sys::rdma_cm_event,
    ) -> c_int {
        // SAFETY: `new` set the context, and the id is destroyed (which waits for us) before it goes away.
        let context = unsafe { &*(*id).context.cast::<Context<H>>() };
        // SAFETY: The CM hands us a valid event.
        let event = unsafe { &*event };
        trace::cm_event(context.number(), event.event, event.status);
        match event.event {
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED
            | sys::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => context.set(Phase::Done),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
                // SAFETY: For this event the connection arm is the valid one.
                let accepted = unsafe { Self::accepted(&event.param.conn) };
                context.set(Phase::Established(Some(accepted)));
            }
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => context.fail(EHOSTUNREACH),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR
            | sys::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => context.fail(ENETUNREACH),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => context.fail(ENOTCONN),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => context.fail(ECONNREFUSED),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => context.fail(ECONNABORTED),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE
            | sys::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => context.fail(ENODEV),
            _ => {}
        }
        // The id is always destroyed by its owner. The CM waits for that where a device goes away.
        0
    }

    /// # Safety
    ///
    /// `conn` must be the parameters of an event being handled.
    unsafe fn accepted(conn: &sys::rdma_conn_param) -> Accepted {
        let mut accepted = Accepted {
            data: [0; MAX_PRIVATE_DATA],
            len: 0,
        };
        let len = usize::from(conn.private_data_len).min(MAX_PRIVATE_DATA);
        if !conn.private_data.is_null() {
            // SAFETY: The CM gives `private_data_len` octets; `len` is no more than that, nor than the array.
            unsafe {
                ptr::copy_nonoverlapping(
                    conn.private_data.cast::<u8>(),
                    accepted.data.as_mut_ptr(),
                    len,
                )
            };
            accepted.len = len;
        }
        accepted
    }

    /// Begins a step with `begin` and waits for its event.
    fn step(
        &mut self,
        timeout: Msecs,
        begin: impl FnOnce(*mut sys::rdma_cm_id) -> c_int,
    ) -> Result<Option<Accepted>> {
        {
            let mut phase = self.context.phase.lock();
            if let Phase::Failed(error) = *phase {
                return Err(error);
            }
            *phase = Phase::Waiting;
        }
        to_result(begin(self.id.as_ptr()))?;

        let mut left = msecs_to_jiffies(timeout);
        let mut phase = self.context.phase.lock();
        loop {
            match &mut *phase {
                Phase::Done => return Ok(None),
                Phase::Established(accepted) => return Ok(accepted.take()),
                Phase::Failed(error) => return Err(*error),
                Phase::Waiting => {}
            }
            left = match self
                .context
                .changed
                .wait_interruptible_timeout(&mut phase, left)
            {
                CondVarTimeoutResult::Woken { jiffies } => jiffies,
                CondVarTimeoutResult::Signal { .. } => return Err(EINTR),
                CondVarTimeoutResult::Timeout => {
                    // The event may have come with the clock's last tick.
                    if matches!(*phase, Phase::Waiting) {
                        return Err(ETIMEDOUT);
                    }
                    0
                }
            };
        }
    }

    /// Finds the device that reaches `address`.
    ///
    /// # Errors
    ///
    /// `EHOSTUNREACH`, `ENODEV`, `ETIMEDOUT`, or what the CM reports.
    pub(crate) fn resolve_address(&mut self, address: SockAddr<'_>, timeout: Msecs) -> Result {
        let limit = c_ulong::try_from(timeout).map_err(|_| EINVAL)?;
        self.step(timeout, |id| {
            // SAFETY: The id is live, the address valid; the CM copies it.
            unsafe { sys::rdma_resolve_addr(id, ptr::null_mut(), address.as_ptr(), limit) }
        })
        .map(drop)
    }

    /// Finds the way to the peer.
    ///
    /// # Errors
    ///
    /// `ENETUNREACH`, `ENODEV`, `ETIMEDOUT`, or what the CM reports.
    pub(crate) fn resolve_route(&mut self, timeout: Msecs) -> Result {
        let limit = c_ulong::try_from(timeout).map_err(|_| EINVAL)?;
        self.step(timeout, |id| {
            // SAFETY: The id is live and its address resolved (else the CM says EINVAL).
            unsafe { sys::rdma_resolve_route(id, limit) }
        })
        .map(drop)
    }

    /// Asks the peer for a connection and waits for its answer. The QP must exist and be ready to receive.
    ///
    /// # Errors
    ///
    /// `ECONNREFUSED`, `ENETUNREACH`, `ENODEV`, `ETIMEDOUT`, or what the CM reports.
    pub(super) fn connect(
        &mut self,
        private_data: &[u8],
        limits: &DeviceLimits,
        timeout: Msecs,
    ) -> Result<Accepted> {
        let len = u8::try_from(private_data.len()).map_err(|_| EINVAL)?;
        let mut parameters = sys::rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: len,
            // The peer reads from us (Read chunks); we never start RDMA Reads in Version One.
            responder_resources: limits.inbound_reads,
            initiator_depth: 0,
            // Flow control is the credits' work. A Receive that is missing is a bug that should be seen, so
            // the fabric shall not hide it by trying again.
            flow_control: 0,
            rnr_retry_count: 0,
            retry_count: RETRY_COUNT,
            ..pin_init::zeroed()
        };
        self.step(timeout, |id| {
            // SAFETY: The id is live; the parameters and the private data are copied during the call.
            unsafe { sys::rdma_connect(id, &raw mut parameters) }
        })?
        .ok_or(ENOTCONN)
    }

    /// Asks the peer to end the connection; moves the QP to its error state.
    pub(super) fn disconnect(&self) {
        // SAFETY: The id is live. An error means that there is no connection.
        unsafe { sys::rdma_disconnect(self.id.as_ptr()) };
    }

    /// Ends what the owner is waiting for, as if the CM had failed.
    pub(crate) fn abort_handle(&self) -> AbortHandle<H> {
        AbortHandle(self.context.clone())
    }

    /// What the handler works on.
    pub(super) fn context(&self) -> &Arc<Context<H>> {
        &self.context
    }

    /// The C object.
    pub(super) fn as_ptr(&self) -> *mut sys::rdma_cm_id {
        self.id.as_ptr()
    }

    /// The device, once the address has been resolved.
    pub(super) fn device(&self) -> Option<NonNull<sys::ib_device>> {
        // SAFETY: The id is live.
        NonNull::new(unsafe { (*self.id.as_ptr()).device })
    }

    /// The limits of the device, once the address has been resolved.
    pub(crate) fn device_limits(&self) -> Option<DeviceLimits> {
        let device = self.device()?;
        // SAFETY: The id is live. With the device it was given a port of it.
        let port = unsafe { (*self.id.as_ptr()).port_num };
        // SAFETY: The id holds its device.
        Some(unsafe { DeviceLimits::read(device, port) })
    }

    /// The name of the device, once the address has been resolved.
    pub(crate) fn device_name(&self) -> &CStr {
        match self.device() {
            // SAFETY: The id holds its device, and `self` the id.
            Some(device) => unsafe { device::name(device) },
            None => c"none",
        }
    }
}

impl<H: ConnectionEvents> Drop for CmId<H> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the id is ours and not yet destroyed. This waits for the handler.
        unsafe { sys::rdma_destroy_id(self.id.as_ptr()) };
    }
}

/// Lets another thread end a wait in [`CmId`].
pub(crate) struct AbortHandle<H: ConnectionEvents>(Arc<Context<H>>);

impl<H: ConnectionEvents> AbortHandle<H> {
    /// Makes the current and every later step fail with `ESHUTDOWN`.
    pub(crate) fn abort(&self) {
        let mut phase = self.0.phase.lock();
        *phase = Phase::Failed(ESHUTDOWN);
        drop(phase);
        self.0.changed.notify_all();
    }
}
