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
    device_limits,
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
use core::{
    mem::ManuallyDrop,
    ptr,
    slice, //
};
use kernel::error::{
    from_err_ptr,
    to_result, //
};

/// Requests that the CM keeps for us, by device, before it rejects further ones.
const BACKLOG: c_int = 128;

/// The RNR retry count that sets no limit (InfiniBand Architecture Specification, section
/// 9.7.5.2.8).
const RETRY_FOR_EVER: u8 = 7;

/// Told of connections that ask to be accepted.
pub(crate) trait ConnectionRequests: Send + Sync + Sized + 'static {
    /// A peer wants to connect. Runs in the CM's handler. Dropping `incoming` after an error
    /// rejects the peer.
    ///
    /// # Errors
    ///
    /// Gives the request back if it can't be kept.
    fn requested(&self, incoming: ConnectRequest<Self>) -> Result<(), ConnectRequest<Self>>;

    /// The device of a request goes away, which is to be dropped soon, but not in here: this runs
    /// in the CM's handler. One that is not kept any more is being accepted or rejected; neither
    /// succeeds, so its owner drops it.
    fn withdrawn(this: &Arc<Self>, id: RequestId);

    /// The device at whose address we listen goes away, and the listener is to be dropped soon, but
    /// not in here: this runs in the CM's handler. A listener at all addresses does not hear of
    /// this.
    fn device_gone(this: &Arc<Self>);

    /// The address at which we listen has moved to another device, where only a new listener would
    /// hear of requests. Runs in the CM's handler.
    fn address_moved(this: &Arc<Self>);
}

/// A name for a request. It can't be used for anything but comparison.
#[derive(Clone, Copy)]
pub(crate) struct RequestId(*mut sys::rdma_cm_id);

/// A connection that a peer asks for.
///
/// # Invariants
///
/// `id` is the id of a connection request, not yet destroyed. Its context is `listener`.
pub(crate) struct ConnectRequest<L: ConnectionRequests> {
    /// The C object.
    id: NonNull<sys::rdma_cm_id>,
    /// The peer's private data.
    private: Accepted,
    /// The number of RDMA Reads that the peer answers at a time.
    read_depth: u8,
    /// The number of RDMA Reads of its own that it would have under way at a time.
    answer_depth: u8,
    /// Set when its device goes away.
    withdrawn: bool,
    /// The receiver of the withdrawal of the request.
    listener: ManuallyDrop<Arc<L>>,
}

// SAFETY: The CM takes its own locks, and nobody else has the id.
unsafe impl<L: ConnectionRequests> Send for ConnectRequest<L> {}

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

    /// The peer's address.
    pub(crate) fn remote(&self) -> SockAddr<'_> {
        // SAFETY: The id is live, and its addresses are of the size of a `sockaddr_storage`.
        unsafe { SockAddr::copy(&raw const (*self.id.as_ptr()).route.addr.dst_addr) }
    }

    /// Our address.
    pub(crate) fn local(&self) -> SockAddr<'_> {
        // SAFETY: As for `remote`.
        unsafe { SockAddr::copy(&raw const (*self.id.as_ptr()).route.addr.src_addr) }
    }

    /// The limits of the device that it came over.
    pub(crate) fn device_limits(&self) -> Option<DeviceLimits> {
        // SAFETY: The id is live. The CM has given it the device and a port of that before it told
        // of the request.
        unsafe { device_limits(self.id) }
    }

    /// Returns whether this is the request with that id.
    pub(crate) fn is(&self, id: RequestId) -> bool {
        ptr::eq(self.id.as_ptr(), id.0)
    }

    /// Its device goes away.
    pub(crate) fn withdraw(&mut self) {
        self.withdrawn = true;
    }

    /// Returns whether its device goes away.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.withdrawn
    }

    /// Gives up the ownership of the id.
    fn into_raw(self) -> NonNull<sys::rdma_cm_id> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: Neither is used after this: `this` is not dropped.
        unsafe { ManuallyDrop::drop(&mut this.listener) };
        this.id
    }

    /// Handles the events of an id that nobody has accepted yet. Only one matters: that its device
    /// goes away, which the CM says once, and then waits for the id to be destroyed.
    ///
    /// # Safety
    ///
    /// Called by the CM for the id of a `ConnectRequest<L>`.
    unsafe extern "C" fn pending_callback(
        id: *mut sys::rdma_cm_id,
        event: *mut sys::rdma_cm_event,
    ) -> c_int {
        // SAFETY: The CM hands us a valid event.
        if unsafe { (*event).event } != sys::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL {
            return 0;
        }
        // SAFETY: By the type invariant this is the listener, which the request keeps until its id
        // is destroyed or has another handler; both wait for this one. It is borrowed, so its count
        // stays.
        let listener = ManuallyDrop::new(unsafe {
            Arc::<L>::from_raw((*id).context.cast::<L>().cast_const())
        });
        L::withdrawn(&listener, RequestId(id));
        0
    }
}

impl<L: ConnectionRequests> Drop for ConnectRequest<L> {
    fn drop(&mut self) {
        // Waits for the handler.
        // SAFETY: By the type invariant the id is ours and not yet destroyed.
        unsafe { sys::rdma_destroy_id(self.id.as_ptr()) };
        // SAFETY: It is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.listener) };
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
        context.set_established(Accepted::new(&[], 0));
        // SAFETY: The id is live and ours. The CM reads both members under the lock that is taken
        // here. The context outlives the id, see `new`.
        unsafe {
            let id = incoming.id.as_ptr();
            sys::rdma_lock_handler(id);
            (*id).context = Arc::as_ptr(&context).cast_mut().cast();
            (*id).event_handler = Some(Self::event_callback);
            sys::rdma_unlock_handler(id);
        }
        let id = incoming.into_raw();
        Ok(Self {
            id,
            qp: None,
            context,
        })
    }

    /// Accepts the connection, on which so many RDMA Reads as `read_depth` may be under way at
    /// once, and so many of the peer's as `answer_depth`. The QP must exist, with its Receives
    /// posted.
    ///
    /// With `shared`, others may take the Receive that the peer was promised, before they are cut
    /// off. Then the peer's device tries again, as often as it takes: a Receive that is missing
    /// for a moment delays the message by a third of a millisecond or more, and does not end the
    /// connection. Without, only we can be wrong, and the first attempt is the last one. Either
    /// way devices count it. There is no such thing in iWARP.
    ///
    /// # Errors
    ///
    /// What the CM reports, for instance because the peer has given up.
    pub(crate) fn accept(
        &mut self,
        private_data: &[u8],
        read_depth: u8,
        answer_depth: u8,
        shared: bool,
    ) -> Result {
        let len = u8::try_from(private_data.len()).map_err(|_| EINVAL)?;
        if shared {
            let timer = sys::ib_rnr_timeout_IB_RNR_TIMER_000_32 as u8;
            // SAFETY: The id is live. The CM takes its own lock, and sets the timer when it
            // accepts.
            to_result(unsafe { sys::rdma_set_min_rnr_timer(self.id.as_ptr(), timer) })?;
        }
        let mut parameters = sys::rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: len,
            // A Responder reads from its peer. It is read from only by who may be given Read
            // chunks, in Version Two.
            responder_resources: answer_depth,
            initiator_depth: read_depth,
            flow_control: 0,
            // For the peer's Sends.
            rnr_retry_count: if shared { RETRY_FOR_EVER } else { 0 },
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
/// # Invariants
///
/// `id` listens, with `handler` as its context, and is not yet destroyed.
pub(crate) struct Listener<L: ConnectionRequests> {
    /// The C object.
    id: NonNull<sys::rdma_cm_id>,
    /// The receiver of requests. Kept until the id is destroyed.
    handler: ManuallyDrop<Arc<L>>,
}

// SAFETY: The CM takes its own locks.
unsafe impl<L: ConnectionRequests> Send for Listener<L> {}

impl<L: ConnectionRequests> Listener<L> {
    /// Listens at `address` of `net`.
    ///
    /// # Errors
    ///
    /// What the CM reports: `EADDRINUSE`, `EADDRNOTAVAIL`, `ENODEV`, `ENOMEM`.
    pub(crate) fn new(net: Net<'_>, address: SockAddr<'_>, handler: Arc<L>) -> Result<Self> {
        // SAFETY: `net` is live; the handler outlives the id, which `Drop` destroys first.
        let id = from_err_ptr(unsafe {
            sys::rdma_create_id(
                net.as_ptr(),
                Some(Self::event_callback),
                Arc::as_ptr(&handler).cast_mut().cast(),
                sys::rdma_ucm_port_space_RDMA_PS_TCP,
                sys::ib_qp_type_IB_QPT_RC,
            )
        })?;
        let this = Self {
            id: NonNull::new(id).ok_or(ENOMEM)?,
            handler: ManuallyDrop::new(handler),
        };
        // An IPv6 listener leaves the port to an IPv4 one.
        // SAFETY: The id is live.
        to_result(unsafe { sys::rdma_set_afonly(id, 1) })?;
        // SAFETY: The id is live, the address valid; the CM copies it.
        to_result(unsafe { sys::rdma_bind_addr(id, address.as_ptr().cast_mut()) })?;
        // SAFETY: The id is live and bound.
        to_result(unsafe { sys::rdma_listen(id, BACKLOG) })?;
        Ok(this)
    }

    /// The address it listens at, the port filled in.
    pub(crate) fn local(&self) -> SockAddr<'_> {
        // SAFETY: The id is live, and its addresses are of the size of a `sockaddr_storage`.
        unsafe { SockAddr::copy(&raw const (*self.id.as_ptr()).route.addr.src_addr) }
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
            sys::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => {
                L::device_gone(&handler);
                return 0;
            }
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => {
                L::address_moved(&handler);
                return 0;
            }
            _ => return 0,
        }
        // SAFETY: For this event the connection arm is the valid one.
        let conn = unsafe { &*event.param.conn };
        let private = if conn.private_data.is_null() {
            Accepted::new(&[], 0)
        } else {
            // SAFETY: The CM gives `private_data_len` octets, which stay as they are during the
            // event.
            let data = unsafe {
                slice::from_raw_parts(
                    conn.private_data.cast::<u8>(),
                    usize::from(conn.private_data_len),
                )
            };
            Accepted::new(data, 0)
        };
        // SAFETY: The id is live, and the CM reads these members under the handler lock, which it
        // holds now.
        unsafe { (*id.as_ptr()).event_handler = Some(ConnectRequest::<L>::pending_callback) };
        // INVARIANT: The event gives us the id, unless we return something else than zero. Its
        // context is that of the listener.
        let incoming = ConnectRequest {
            id,
            private,
            read_depth: conn.initiator_depth,
            answer_depth: conn.responder_resources,
            withdrawn: false,
            listener: ManuallyDrop::new(Arc::clone(&handler)),
        };
        match handler.requested(incoming) {
            Ok(()) => 0,
            Err(incoming) => {
                // The CM destroys the id itself then.
                incoming.into_raw();
                1
            }
        }
    }
}

impl<L: ConnectionRequests> Drop for Listener<L> {
    fn drop(&mut self) {
        // Waits for the handler.
        // SAFETY: By the type invariant the id is ours and not yet destroyed.
        unsafe { sys::rdma_destroy_id(self.id.as_ptr()) };
        // SAFETY: It is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.handler) };
    }
}
