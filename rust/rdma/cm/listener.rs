// SPDX-License-Identifier: GPL-2.0

//! The passive side of the connection manager: listening, and connections that ask to be accepted.
//!
//! # Who owns what
//!
//! A [`Listener`] owns its CM id. Each request brings a new CM id, which belongs to a
//! [`ConnectRequest`] from the moment its event is handled: dropped, it destroys the id, by which
//! the CM rejects the peer. Adopted by [`CmId::adopt`] it becomes the id of an endpoint. The
//! events of an id that is not yet adopted go to `pending_callback`, which ignores all but one: a
//! peer that gave up is noticed when the connection is accepted.
//!
//! When a device goes away the CM says so to each id on it, once, and then waits until all of them
//! are destroyed. The handlers only pass that on: what is dropped in a handler might be the last
//! that keeps this module.

use super::{
    context::Phase,
    host::Host,
    id::Id,
    Accepted,
    CmEvents,
    CmId,
    Context, //
};
use crate::kext::prelude::*;
use crate::{
    kext::net::{
        Net,
        SockAddr, //
    },
    rdma::device::DeviceLimits,
    sys, //
};
use core::mem::ManuallyDrop;

/// Requests that the CM keeps for us, by device, before it rejects further ones. Of iWARP only, for
/// which it allocates them.
const BACKLOG: c_int = 1024;

/// The RNR retry count that sets no limit (InfiniBand Architecture Specification, section
/// 9.7.5.2.8).
const RETRY_FOR_EVER: u8 = 7;

/// The time after which a peer's device tries again to send what found no Receive. The CM would
/// have 655 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RnrTimer {
    /// The queue is shared: others may have used the Receives that were there. 0.32 ms.
    Shared,
    /// The queue is the peer's own. One that keeps to its credits always finds a Receive there; one
    /// that does not waits for what it has sent before, and asks 800 times a second at most:
    /// 1.28 ms.
    Own,
}

impl RnrTimer {
    /// Returns its code.
    const fn code(self) -> u8 {
        let code = match self {
            Self::Shared => sys::ib_rnr_timeout_IB_RNR_TIMER_000_32,
            Self::Own => sys::ib_rnr_timeout_IB_RNR_TIMER_001_28,
        };
        // CAST: The codes have five bits.
        code as u8
    }
}

/// Told of connections that ask to be accepted.
pub(crate) trait ConnectionRequests: Send + Sync + Sized + 'static {
    /// A peer wants to connect. Runs in the CM's handler. Dropping `incoming` after an error
    /// rejects the peer.
    ///
    /// # Errors
    ///
    /// Gives the request back if it can't be kept.
    fn requested(
        this: &Arc<Self>,
        incoming: ConnectRequest<Self>,
    ) -> Result<(), ConnectRequest<Self>>;

    /// The device of a request goes away, or its peer has given up. The request must be dropped
    /// soon, but not in here: this runs in the CM's handler. One that is not kept any more is being
    /// accepted or rejected; neither succeeds, so its owner drops it.
    fn withdrawn(this: &Arc<Self>, id: RequestId);

    /// The device at whose address we listen goes away, or the address has moved to another device,
    /// where only a new listener would hear of requests. The listener must be dropped soon, but not
    /// in here: this runs in the CM's handler. One at all addresses hears of neither.
    fn address_lost(this: &Arc<Self>);
}

/// A name for a request, unique while the request lives: the address of its id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId(usize);

impl RequestId {
    /// The name of a request with this id.
    fn new(id: *mut sys::rdma_cm_id) -> Self {
        Self(id as usize)
    }

    /// A name that no request has.
    #[cfg(rpcrdma_kunit)]
    pub(crate) const fn test(number: usize) -> Self {
        Self(number)
    }
}

/// A connection that a peer asks for.
///
/// The fields are dropped in this order.
///
/// # Invariants
///
/// The context of `id` is `_listener`.
pub(crate) struct ConnectRequest<L: ConnectionRequests> {
    /// The id.
    id: Id,
    /// The peer's private data.
    private: Accepted,
    /// The number of RDMA Reads that the peer answers at a time.
    read_depth: u8,
    /// The number of RDMA Reads of its own that it would have under way at a time.
    answer_depth: u8,
    /// The receiver of the withdrawal of the request.
    _listener: Arc<L>,
}

impl<L: ConnectionRequests> ConnectRequest<L> {
    /// The peer's private data.
    pub(crate) fn private_data(&self) -> &[u8] {
        self.private.private_data()
    }

    /// Returns the number of RDMA Reads that the peer answers at a time.
    pub(crate) fn read_depth(&self) -> u8 {
        self.read_depth
    }

    /// Returns the number of RDMA Reads of its own that it would have under way at a time.
    pub(crate) fn answer_depth(&self) -> u8 {
        self.answer_depth
    }

    /// Returns the peer's address.
    pub(crate) fn remote(&self) -> SockAddr<'_> {
        self.id.remote()
    }

    /// Returns where the peer is.
    pub(crate) fn host(&self) -> Host {
        self.id.host()
    }

    /// Returns our address.
    pub(crate) fn local(&self) -> SockAddr<'_> {
        self.id.local()
    }

    /// Returns the limits of the device that it came over.
    pub(crate) fn device_limits(&self) -> Option<DeviceLimits> {
        self.id.device_limits()
    }

    /// Returns the name of the request.
    pub(crate) fn name(&self) -> RequestId {
        RequestId::new(self.id.as_ptr())
    }

    /// Handles the events of an id that nobody has accepted yet: its device goes away, which the CM
    /// says once, and then waits for the id to be destroyed; or the peer has given up, so that it
    /// is of no use to anybody.
    ///
    /// # Safety
    ///
    /// Called by the CM for the id of a `ConnectRequest<L>`.
    unsafe extern "C" fn pending_callback(
        id: *mut sys::rdma_cm_id,
        event: *mut sys::rdma_cm_event,
    ) -> c_int {
        // SAFETY: The CM hands us a valid event.
        let event = unsafe { (*event).event };
        if !matches!(
            event,
            sys::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL
                | sys::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED
                | sys::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE
                | sys::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED
        ) {
            return 0;
        }
        // SAFETY: By the type invariant this is the listener, which the request keeps until its id
        // is destroyed or has another handler; both wait for this one. It is borrowed, so its count
        // stays.
        let listener = ManuallyDrop::new(unsafe {
            Arc::<L>::from_raw((*id).context.cast::<L>().cast_const())
        });
        L::withdrawn(&listener, RequestId::new(id));
        0
    }
}

impl<H: CmEvents> CmId<H> {
    /// Takes over an id that asks to be accepted. From now on its events go to `handler`: also a
    /// connection that never comes about is reported as lost.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; the peer is rejected.
    pub(crate) fn adopt<L: ConnectionRequests>(
        incoming: ConnectRequest<L>,
        handler: Arc<H>,
    ) -> Result<Self> {
        let context = Context::new(handler)?;
        context.set(Phase::Established(Some(Accepted::NOTHING)));
        // SAFETY: The id is live and ours. The CM reads both members under the lock that is taken
        // here. The context outlives the id, see `new`.
        unsafe {
            let id = incoming.id.as_ptr();
            sys::rdma_lock_handler(id);
            (*id).context = Arc::as_ptr(&context).cast_mut().cast();
            (*id).event_handler = Some(Self::event_callback);
            sys::rdma_unlock_handler(id);
        }
        Ok(Self {
            qp: None,
            id: incoming.id,
            context,
        })
    }

    /// Accepts the connection, on which up to `read_depth` RDMA Reads may be under way at once, and
    /// up to `answer_depth` of the peer's. The QP must exist, with its Receives posted.
    ///
    /// Where a message finds no Receive the peer's device tries again after the time of `timer`, as
    /// often as it takes, and both devices count it. There is no such thing in iWARP.
    ///
    /// # Errors
    ///
    /// What the CM reports, for instance because the peer has given up.
    pub(crate) fn accept(
        &mut self,
        private_data: &[u8],
        read_depth: u8,
        answer_depth: u8,
        timer: RnrTimer,
    ) -> Result {
        let len = u8::try_from(private_data.len()).map_err(|_| EINVAL)?;
        // SAFETY: The id is live. The CM takes its own lock, and sets the timer when it accepts.
        to_result(unsafe { sys::rdma_set_min_rnr_timer(self.id.as_ptr(), timer.code()) })?;
        let mut parameters = sys::rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: len,
            // A Responder reads from its peer. It is read from only by a peer that may be given
            // Read chunks, in Version Two.
            responder_resources: answer_depth,
            initiator_depth: read_depth,
            flow_control: 0,
            // For the peer's Sends.
            rnr_retry_count: RETRY_FOR_EVER,
            ..pin_init::zeroed()
        };
        // SAFETY: The id is live; `rdma_accept` wants the lock held; parameters and private data
        // are copied during the call.
        unsafe {
            sys::rdma_lock_handler(self.id.as_ptr());
            let status = sys::rdma_accept(self.id.as_ptr(), &raw mut parameters);
            sys::rdma_unlock_handler(self.id.as_ptr());
            to_result(status)
        }
    }
}

/// A CM id that listens.
///
/// The fields are dropped in this order.
///
/// # Invariants
///
/// `id` listens, with `_handler` as its context.
pub(crate) struct Listener<L: ConnectionRequests> {
    /// The id.
    id: Id,
    /// The receiver of requests.
    _handler: Arc<L>,
}

impl<L: ConnectionRequests> Listener<L> {
    /// Listens at `address` of `net`.
    ///
    /// # Errors
    ///
    /// What the CM reports: `EADDRINUSE`, `EADDRNOTAVAIL`, `ENODEV`, `ENOMEM`.
    pub(crate) fn new(net: Net<'_>, address: SockAddr<'_>, handler: Arc<L>) -> Result<Self> {
        let pointer = Arc::as_ptr(&handler).cast_mut().cast();
        // SAFETY: `pointer` is what the handler wants, and goes after the id.
        let id = unsafe { Id::new(net, Some(Self::event_callback), pointer) }?;
        let this = Self {
            id,
            _handler: handler,
        };
        let id = this.id.as_ptr();
        // An IPv6 listener leaves the port to an IPv4 one.
        // SAFETY: The id is live.
        to_result(unsafe { sys::rdma_set_afonly(id, 1) })?;
        // SAFETY: The id is live, the address valid; the CM copies it.
        to_result(unsafe { sys::rdma_bind_addr(id, address.as_ptr().cast_mut()) })?;
        // SAFETY: The id is live and bound.
        to_result(unsafe { sys::rdma_listen(id, BACKLOG) })?;
        Ok(this)
    }

    /// Returns the address it listens at, the port filled in.
    pub(crate) fn local(&self) -> SockAddr<'_> {
        self.id.local()
    }

    /// # Safety
    ///
    /// Called by the CM with the id of a listener, or with a new id that has inherited its context.
    unsafe extern "C" fn event_callback(
        id: *mut sys::rdma_cm_id,
        event: *mut sys::rdma_cm_event,
    ) -> c_int {
        // SAFETY: The CM hands us a valid event.
        let event = unsafe { &*event };
        let Some(id) = NonNull::new(id) else {
            return 0;
        };
        // SAFETY: The id is that of a listener, or a new one that still has its context. The
        // destruction of the listener, which keeps the context, waits for this handler. It is
        // borrowed, so its count stays.
        let handler = ManuallyDrop::new(unsafe {
            Arc::<L>::from_raw((*id.as_ptr()).context.cast::<L>().cast_const())
        });
        match event.event {
            sys::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST => {}
            sys::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL
            | sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => {
                L::address_lost(&handler);
                return 0;
            }
            _ => return 0,
        }
        // SAFETY: For this event the connection arm is the valid one.
        let conn = unsafe { &*event.param.conn };
        // SAFETY: It belongs to this event.
        let private = unsafe { Accepted::new(conn, 0) };
        // SAFETY: The id is live, and the CM reads these members under the handler lock, which it
        // holds now.
        unsafe { (*id.as_ptr()).event_handler = Some(ConnectRequest::<L>::pending_callback) };
        // SAFETY: The event gives us the id, unless we return something else than zero.
        let id = unsafe { Id::from_raw(id) };
        // INVARIANT: The context of the id is that of the listener.
        let incoming = ConnectRequest {
            id,
            private,
            read_depth: conn.initiator_depth,
            answer_depth: conn.responder_resources,
            _listener: Arc::clone(&handler),
        };
        match L::requested(&handler, incoming) {
            Ok(()) => 0,
            Err(incoming) => {
                incoming.id.leave_to_cm();
                1
            }
        }
    }
}
