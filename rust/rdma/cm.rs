// SPDX-License-Identifier: GPL-2.0

//! The RDMA connection manager: ids of connections. The active side is here, the passive one in
//! `listener`.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

mod context;
mod listener;
mod queue_pair;

use self::queue_pair::QueuePair;
pub(crate) use self::{
    context::{
        AbortHandle,
        Accepted,
        CmEvents,
        Context, //
    },
    listener::{
        ConnectRequest,
        ConnectionRequests,
        Listener,
        RequestId, //
    },
    queue_pair::{
        Drained,
        QueuePairEvents,
        QueuePairParameters,
        QueuePairUser,
        ReceiveSource, //
    }, //
};

use crate::kext::prelude::*;
use crate::{
    kext::net::{
        Net,
        SockAddr, //
    },
    rdma::{
        device::{
            Device,
            DeviceLimits,
            DeviceName, //
        },
        shared_receive_queue::SharedReceives, //
    },
    sys, //
};
use core::{
    ptr,
    slice, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    time::Msecs, //
};

/// The number of times that the CM sends again before it gives up on a silent peer. Few, so that a
/// peer that has moved is noticed soon: SUNRPC does the rest.
const RETRY_COUNT: u8 = 6;

/// The time to wait longer than the CM for the end of a resolution: the CM says why there is none,
/// and so whether there is any use in trying again at once.
const MARGIN: Msecs = 1_000;

/// A CM id of the active side, with its handler.
///
/// # Invariants
///
/// `id` is an id whose context is `context`, not yet destroyed.
pub(crate) struct CmId<H: CmEvents> {
    /// The C object.
    id: NonNull<sys::rdma_cm_id>,
    /// The QP.
    qp: Option<QueuePair>,
    /// The object that the handler works on.
    context: Arc<Context<H>>,
}

// SAFETY: The CM takes its own locks; the methods that need exclusion take `&mut self`.
unsafe impl<H: CmEvents> Send for CmId<H> {}

impl<H: CmEvents> CmId<H> {
    /// Creates an id in `net`, whose events go to `handler`.
    ///
    /// # Errors
    ///
    /// What the CM reports, `ENOMEM` above all.
    pub(crate) fn new(net: Net<'_>, handler: Arc<H>) -> Result<Self> {
        let context = Context::new(handler)?;
        // SAFETY: `net` is live; the context outlives the id, which `Drop` destroys before it lets
        // go of the context.
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
            qp: None,
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
        // SAFETY: `new` set the context, and the id is destroyed (which waits for us) before it
        // goes away.
        let context = unsafe { &*(*id).context.cast::<Context<H>>() };
        // SAFETY: The CM hands us a valid event.
        let event = unsafe { &*event };
        context.handler().event(event.event, event.status);
        match event.event {
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED
            | sys::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => context.set_done(),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
                // SAFETY: The id is live, and has a device with a port now.
                let limits = NonNull::new(id).and_then(|id| unsafe { device_limits(id) });
                let iwarp = limits.is_some_and(|limits| limits.iwarp);
                // SAFETY: For this event the connection arm is the valid one.
                let accepted = unsafe { Self::accepted(&event.param.conn, iwarp) };
                context.set_established(accepted);
                context.handler().connection_established();
            }
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => context.fail(EHOSTUNREACH),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR
            | sys::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => context.fail(ENETUNREACH),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => context.fail(ENOTCONN),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => context.fail(refusal(event.status)),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => context.fail(ECONNABORTED),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => context.fail(ENODEV),
            sys::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => context.device_gone(),
            _ => {}
        }
        // The id is always destroyed by its owner. The CM waits for that where a device goes away.
        0
    }

    /// Copies what came with an acceptance.
    ///
    /// # Safety
    ///
    /// `conn` must be the parameters of an event being handled.
    unsafe fn accepted(conn: &sys::rdma_conn_param, iwarp: bool) -> Accepted {
        // The CM names the two numbers of iWARP the other way round.
        let reads = if iwarp {
            conn.responder_resources
        } else {
            conn.initiator_depth
        };
        if conn.private_data.is_null() {
            return Accepted::new(&[], reads);
        }
        // SAFETY: The CM gives `private_data_len` octets, which stay as they are during the event.
        let data = unsafe {
            slice::from_raw_parts(
                conn.private_data.cast::<u8>(),
                usize::from(conn.private_data_len),
            )
        };
        Accepted::new(data, reads)
    }

    /// Begins a step with `begin` and waits for its event.
    fn step(
        &mut self,
        timeout: Msecs,
        begin: impl FnOnce(*mut sys::rdma_cm_id) -> c_int,
    ) -> Result<Option<Accepted>> {
        self.context.begin()?;
        to_result(begin(self.id.as_ptr()))?;
        self.context.wait(timeout)
    }

    /// Finds the device that reaches `address`.
    ///
    /// # Errors
    ///
    /// `EHOSTUNREACH`, `ENODEV`, `ETIMEDOUT`, or what the CM reports.
    pub(crate) fn resolve_address(&mut self, address: SockAddr<'_>, timeout: Msecs) -> Result {
        let limit = c_ulong::try_from(timeout).map_err(|_| EINVAL)?;
        self.step(timeout.saturating_add(MARGIN), |id| {
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
        self.step(timeout.saturating_add(MARGIN), |id| {
            // SAFETY: The id is live and its address resolved (else the CM says EINVAL).
            unsafe { sys::rdma_resolve_route(id, limit) }
        })
        .map(drop)
    }

    /// Asks the peer for a connection and waits for its answer. The QP must exist and be ready to
    /// receive. So many RDMA Reads as `read_depth` may be under way at once; the peer may allow
    /// fewer.
    ///
    /// # Errors
    ///
    /// `ECONNREFUSED`, `ECONNRESET` (siw says so when it was refused, too), `ECONNABORTED`,
    /// `ENOTCONN` (to try again is of use), `ENETUNREACH`, `ENODEV`, `ETIMEDOUT`, or what the CM
    /// reports.
    pub(crate) fn connect(
        &mut self,
        private_data: &[u8],
        limits: &DeviceLimits,
        read_depth: u8,
        timeout: Msecs,
    ) -> Result<Accepted> {
        let len = u8::try_from(private_data.len()).map_err(|_| EINVAL)?;
        let mut parameters = sys::rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: len,
            // The peer reads from us (Read chunks). We read from it only where it may give us such,
            // in Version Two.
            responder_resources: limits.inbound_reads,
            initiator_depth: read_depth,
            // Flow control is the credits' work. A Receive that is missing is a bug that should be
            // seen, so the fabric shall not hide it by trying again.
            flow_control: 0,
            rnr_retry_count: 0,
            retry_count: RETRY_COUNT,
            ..pin_init::zeroed()
        };
        self.step(timeout, |id| {
            // SAFETY: The id is live; the parameters and the private data are copied during the
            // call.
            unsafe { sys::rdma_connect(id, &raw mut parameters) }
        })?
        .ok_or(ENOTCONN)
    }

    /// Asks the peer to end the connection; moves the QP to its error state.
    pub(crate) fn disconnect(&self) {
        // SAFETY: The id is live. An error means that there is no connection.
        unsafe { sys::rdma_disconnect(self.id.as_ptr()) };
    }

    /// Ends what the owner is waiting for, as if the CM had failed.
    pub(crate) fn abort_handle(&self) -> AbortHandle<H> {
        AbortHandle(self.context.clone())
    }

    /// Returns the object that the handler works on.
    pub(crate) fn context(&self) -> &Arc<Context<H>> {
        &self.context
    }

    /// The C object.
    fn as_ptr(&self) -> *mut sys::rdma_cm_id {
        self.id.as_ptr()
    }

    /// The device, once the address has been resolved.
    pub(crate) fn device(&self) -> Option<Device> {
        // SAFETY: The id holds its device.
        unsafe { Device::get(self.raw_device()?) }
    }

    /// The device, once the address has been resolved.
    fn raw_device(&self) -> Option<NonNull<sys::ib_device>> {
        // SAFETY: The id is live.
        NonNull::new(unsafe { (*self.id.as_ptr()).device })
    }

    /// Our address, once that of the peer has been resolved.
    pub(crate) fn local(&self) -> SockAddr<'_> {
        // SAFETY: The id is live, and its addresses are of the size of a `sockaddr_storage`.
        unsafe { SockAddr::copy(&raw const (*self.id.as_ptr()).route.addr.src_addr) }
    }

    /// The limits of the device, once the address has been resolved.
    pub(crate) fn device_limits(&self) -> Option<DeviceLimits> {
        // SAFETY: The id is live. With the device it was given a port of it.
        unsafe { device_limits(self.id) }
    }

    /// The port of the device, once the address has been resolved.
    pub(crate) fn port(&self) -> Option<u32> {
        self.raw_device()?;
        // SAFETY: The id is live.
        Some(unsafe { (*self.id.as_ptr()).port_num })
    }

    /// Returns the name of the device, once the address has been resolved.
    pub(crate) fn device_name(&self) -> DeviceName {
        match self.raw_device() {
            // SAFETY: The id holds its device, and `self` the id.
            Some(device) => unsafe { DeviceName::of(device) },
            None => DeviceName::NONE,
        }
    }

    /// Makes the QP of the connection, whose events go to `events`. The route must be resolved.
    ///
    /// # Errors
    ///
    /// `ENODEV` before a device was found, `EEXIST` if there is a QP, `EINVAL` if the device cannot
    /// have one as large, `ENOMEM`, or what the device reports.
    pub(crate) fn create_queue_pair<O: QueuePairEvents, R: SharedReceives<Member = O>>(
        &mut self,
        parameters: QueuePairParameters<R>,
        events: Arc<O>,
    ) -> Result {
        if self.qp.is_some() {
            return Err(EEXIST);
        }
        let device = self.device().ok_or(ENODEV)?;
        let port = self.port().ok_or(ENODEV)?;
        // SAFETY: The id is ours, and destroyed after `self.qp` was dropped; that waits for this,
        // and so does the end of the device. It has no QP.
        let qp = unsafe { QueuePair::new(self.id, device, port, parameters, events) }?;
        self.qp = Some(qp);
        Ok(())
    }

    /// Returns a use of the QP, if there is one.
    pub(crate) fn queue_pair(&self) -> Option<QueuePairUser> {
        self.qp.as_ref()?.user()
    }

    /// Puts the QP into error, and waits until what was posted to it has completed, or a device has
    /// said that it has. Sleeps.
    ///
    /// Receives that are shared are not waited for. Nobody may be able to post any more, or the
    /// wait may be long. [`None`] if there is no QP.
    pub(crate) fn drain_queue_pair(&self) -> Option<Drained<'_>> {
        self.qp.as_ref()?.drain()
    }

    /// Puts the QP into error, if there is one. Sleeps.
    pub(crate) fn fail_queue_pair(&self) {
        if let Some(qp) = &self.qp {
            qp.fail();
        }
    }

    /// Destroys the QP, if there is one, as soon as it has no user. When this returns, all of its
    /// completions that do not go to a shared queue were handled. Sleeps.
    pub(crate) fn destroy_queue_pair(&mut self) {
        drop(self.qp.take());
    }

    /// Tells the CM that a message has arrived from the peer, so that the connection is established
    /// although the peer's message that says so has not come.
    pub(crate) fn heard_of_peer(&self) {
        // SAFETY: The id exists. The CM takes its own locks, and looks itself whether there is a
        // handshake to be ended.
        unsafe { sys::rdma_notify(self.as_ptr(), sys::ib_event_type_IB_EVENT_COMM_EST) };
    }
}

/// The limits of the device of a CM id; [`None`] if it has none yet.
///
/// # Safety
///
/// The id is live. If it has a device, it was given a port of that too.
unsafe fn device_limits(id: NonNull<sys::rdma_cm_id>) -> Option<DeviceLimits> {
    // SAFETY: The caller guarantees that the id is live.
    let (device, port) = unsafe { ((*id.as_ptr()).device, (*id.as_ptr()).port_num) };
    // SAFETY: The id holds its device, and the caller guarantees the port.
    Some(unsafe { DeviceLimits::read(NonNull::new(device)?, port) })
}

impl<H: CmEvents> Drop for CmId<H> {
    fn drop(&mut self) {
        self.destroy_queue_pair();
        // SAFETY: By the type invariant the id is ours and not yet destroyed. This waits for the
        // handler.
        unsafe { sys::rdma_destroy_id(self.id.as_ptr()) };
    }
}

/// Returns the meaning of a rejection for `reason`. The reasons are those of InfiniBand; iWARP has
/// negative ones: error codes of its driver.
fn refusal(reason: c_int) -> Error {
    // The peer still has a connection of ours that we have forgotten, and is about to forget it
    // too.
    if u32::try_from(reason) == Ok(sys::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN) {
        ENOTCONN
    } else if reason == ECONNRESET.to_errno() {
        ECONNRESET
    } else {
        ECONNREFUSED
    }
}
