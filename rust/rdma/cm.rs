// SPDX-License-Identifier: GPL-2.0

//! The RDMA connection manager: ids of connections. The active side is here, the passive one in
//! `listener`.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

mod context;
mod host;
mod id;
mod listener;
mod queue_pair;

use self::{
    context::Phase,
    id::Id,
    queue_pair::QueuePair, //
};
pub(crate) use self::{
    context::{
        AbortHandle,
        Accepted,
        CmEvents,
        Context, //
    },
    host::Host,
    listener::{
        ConnectRequest,
        ConnectionRequests,
        Listener,
        RequestId,
        RnrTimer, //
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
            DeviceLimits, //
        },
        shared_receive_queue::SharedReceives, //
    },
    sys, //
};
use core::ptr;
use kernel::time::Msecs;

/// The number of times that the CM sends again before it gives up on a silent peer. Few, so that a
/// peer that has moved is noticed soon: SUNRPC does the rest.
const RETRY_COUNT: u8 = 6;

/// The time to wait longer than the CM for the end of a resolution: the CM says why there is none,
/// and so whether there is any use in trying again at once.
const MARGIN: Msecs = 1_000;

/// A CM id of the active side, with its handler.
///
/// The fields are dropped in this order.
///
/// # Invariants
///
/// The context of `id` is `context`.
pub(crate) struct CmId<H: CmEvents> {
    /// The QP.
    qp: Option<QueuePair>,
    /// The id.
    id: Id,
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
        let pointer = Arc::as_ptr(&context).cast_mut().cast();
        // SAFETY: `pointer` is what the handler wants, and goes after the id.
        let id = unsafe { Id::new(net, Some(Self::event_callback), pointer) }?;
        Ok(Self {
            qp: None,
            id,
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
            | sys::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => {
                context.set(Phase::Done);
            }
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
                // SAFETY: For this event the connection arm is the valid one. The id is live, and
                // has a device with a port now.
                let accepted = unsafe {
                    let conn = &event.param.conn;
                    // The CM names the two numbers of iWARP the other way round.
                    let reads = if sys::rdma_protocol_iwarp((*id).device, (*id).port_num) {
                        conn.responder_resources
                    } else {
                        conn.initiator_depth
                    };
                    Accepted::new(conn, reads)
                };
                context.set(Phase::Established(Some(accepted)));
                context.handler().connection_established();
            }
            sys::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => context.device_gone(),
            other => {
                if let Some(error) = failure(other, event.status) {
                    context.fail(error);
                }
            }
        }
        // The id is always destroyed by its owner. The CM waits for that where a device goes away.
        0
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
    /// `ENETUNREACH` if this host has no route, `ENODEV` if the route leads over no RDMA device,
    /// `EHOSTUNREACH`, `ETIMEDOUT`, or what the CM reports.
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
    /// `EHOSTUNREACH`, `ENODEV`, `ETIMEDOUT`, or what the CM reports.
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
    /// `ENOTCONN` (to try again is of use), `ENODEV`, `ETIMEDOUT`, or what the CM reports.
    pub(crate) fn connect(
        &mut self,
        private_data: &[u8],
        read_depth: u8,
        timeout: Msecs,
    ) -> Result<Accepted> {
        let len = u8::try_from(private_data.len()).map_err(|_| EINVAL)?;
        let limits = self.device_limits().ok_or(ENODEV)?;
        let mut parameters = sys::rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: len,
            // The peer reads from us (Read chunks). We read from it only where it may give us such,
            // in Version Two.
            responder_resources: limits.inbound_reads,
            initiator_depth: read_depth,
            // Flow control is the credits' work. A Receive that is missing is a bug that should be
            // seen, so the fabric must not hide it by trying again.
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

    /// Returns the device, once the address has been resolved.
    pub(crate) fn device(&self) -> Option<Device> {
        Some(self.id.device()?.0)
    }

    /// Returns our address, once that of the peer has been resolved.
    pub(crate) fn local(&self) -> SockAddr<'_> {
        self.id.local()
    }

    /// Returns the limits of the device, once the address has been resolved.
    pub(crate) fn device_limits(&self) -> Option<DeviceLimits> {
        self.id.device_limits()
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
        let (device, port) = self.id.device().ok_or(ENODEV)?;
        // SAFETY: The id is ours, and destroyed after `self.qp` was dropped; that waits for this,
        // and so does the end of the device. It has no QP.
        let qp = unsafe { QueuePair::new(self.id.as_ptr(), device, port, parameters, events) }?;
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
    /// completions were handled. Sleeps.
    pub(crate) fn destroy_queue_pair(&mut self) {
        drop(self.qp.take());
    }

    /// Tells the CM that a message has arrived from the peer, so that the connection is established
    /// although the peer's message that says so has not come.
    pub(crate) fn heard_of_peer(&self) {
        // SAFETY: The id exists. The CM takes its own locks, and looks itself whether there is a
        // handshake to be ended.
        unsafe { sys::rdma_notify(self.id.as_ptr(), sys::ib_event_type_IB_EVENT_COMM_EST) };
    }
}

/// Returns the error that an event with `status` means for the step that is under way, or for the
/// connection; [`None`] if it means none. No event says that there is no route: if a route is lost
/// meanwhile, the next attempt finds none and says so.
fn failure(event: u32, status: c_int) -> Option<Error> {
    Some(match event {
        // Without a status of `ENODEV`, no neighbour answers.
        sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR if status == ENODEV.to_errno() => ENODEV,
        // Or the subnet's manager knows no path, or does not answer.
        sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR
        | sys::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR => EHOSTUNREACH,
        // The peer does not answer, or its neighbour entry has changed.
        sys::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => ETIMEDOUT,
        sys::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => ENOTCONN,
        sys::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => refusal(status),
        sys::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => ECONNABORTED,
        sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => ENODEV,
        _ => return None,
    })
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

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_cm)]
mod tests {
    use super::*;

    /// SUNRPC may end RPCs of a mount that waits for `ENETUNREACH` and `ENETDOWN`.
    #[test]
    fn no_event_says_that_there_is_no_network() {
        let mut failures = 0;
        for event in 0..=sys::rdma_cm_event_type_RDMA_CM_EVENT_TIMEWAIT_EXIT {
            for status in [0, ENETUNREACH.to_errno(), ENETDOWN.to_errno()] {
                let failure = failure(event, status);
                assert!(!matches!(failure, Some(ENETUNREACH | ENETDOWN)));
                failures += u32::from(failure.is_some());
            }
        }
        assert_eq!(failures, 3 * 7);
    }
}
