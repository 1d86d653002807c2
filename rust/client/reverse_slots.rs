// SPDX-License-Identifier: GPL-2.0

//! Slots for the Calls of a server.

use crate::endpoint::EndpointEvents;
use crate::kext::prelude::*;
use crate::link::sizing::REVERSE_RECEIVES;
use crate::requester::call::Call;
use crate::requester::Host;
use crate::responder::call;
use crate::sunrpc::Slot;

/// The number of slots: one for each Call that can be received. More than credits, because a
/// slot comes back some time after the Reply was sent, and the peer may send the next Call as soon
/// as it has that.
const SLOTS: u32 = REVERSE_RECEIVES;

/// A Call that was taken in.
pub(super) type ReverseCall<C> = call::Call<C>;

/// The slot of a reverse-direction Call.
pub(super) type ReverseSlot<C> = Slot<Call<C>>;

/// Slots for reverse-direction Calls, made when the callback service is set up.
#[pin_data]
pub(super) struct ReverseSlots<C: Host + EndpointEvents> {
    /// All of them, and whether there is a service.
    #[pin]
    slots: SpinLock<Slots<C>>,
}

/// The state behind the lock of [`ReverseSlots`].
struct Slots<C: Host + EndpointEvents> {
    /// Those that are not with SUNRPC. Never more than its capacity, [`SLOTS`].
    free: KVec<Arc<ReverseSlot<C>>>,
    /// The Calls of those that are with SUNRPC, by the index of the slot.
    calls: [Option<KBox<ReverseCall<C>>>; SLOTS as usize],
    /// One bit for each index of which there is a slot, in `free` or with SUNRPC.
    made: u32,
    /// The service has ended: what comes back is freed.
    closed: bool,
}

kernel::prelude::static_assert!(SLOTS == u32::BITS);

impl<C: Host + EndpointEvents> Slots<C> {
    /// There is no slot of this index any more.
    fn forget(&mut self, index: u32) {
        self.made &= !1_u32.checked_shl(index).unwrap_or(0);
    }

    /// The place for the Call of a slot.
    fn place(&mut self, index: u32) -> Option<&mut Option<KBox<ReverseCall<C>>>> {
        self.calls.get_mut(usize::try_from(index).ok()?)
    }
}

impl<C: Host + EndpointEvents> ReverseSlots<C> {
    /// No slots yet.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            slots <- new_spinlock!(
                Slots {
                    free: KVec::with_capacity(SLOTS as usize, GFP_KERNEL)?,
                    calls: [const { None }; SLOTS as usize],
                    made: 0,
                    closed: false,
                },
                "rpcrdma::ReverseSlots::slots"
            ),
        }? Error)
    }

    /// Makes all slots that may be needed. Calling it again does nothing.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn fill(&self, owner: &Arc<C>) -> Result {
        // The service may have ended before, and begins again; slots of that time may still be with
        // SUNRPC.
        self.slots.lock().closed = false;
        loop {
            let mut slots = self.slots.lock();
            let index = slots.made.trailing_ones();
            if index >= SLOTS {
                return Ok(());
            }
            slots.made |= 1 << index;
            drop(slots);
            let slot = Slot::new_bc(owner, Call::new(index), PAGE_SIZE, GFP_KERNEL);
            let mut slots = self.slots.lock();
            match slot {
                Ok(slot) if !slots.closed => {
                    slots.free.push_within_capacity(slot).map_err(|_| ENOMEM)?;
                }
                slot => {
                    slots.forget(index);
                    drop(slots);
                    return slot.map(drop);
                }
            }
        }
    }

    /// Returns whether the service has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.slots.lock().closed
    }

    /// Returns whether there is a service.
    pub(super) fn is_open(&self) -> bool {
        let slots = self.slots.lock();
        slots.made != 0 && !slots.closed
    }

    /// Takes a free slot.
    pub(super) fn take(&self) -> Option<Arc<ReverseSlot<C>>> {
        self.slots.lock().free.pop()
    }

    /// Keeps the Call of a slot that SUNRPC has, or is about to get.
    pub(super) fn keep(&self, index: u32, call: KBox<ReverseCall<C>>) {
        let mut slots = self.slots.lock();
        let former = match slots.place(index) {
            Some(place) => place.replace(call),
            None => Some(call),
        };
        drop(slots);
        // There is none.
        drop(former);
    }

    /// Takes the Call of a slot out.
    pub(super) fn take_call(&self, index: u32) -> Option<KBox<ReverseCall<C>>> {
        self.slots.lock().place(index)?.take()
    }

    /// Takes a slot back from SUNRPC.
    pub(super) fn put(&self, slot: Arc<ReverseSlot<C>>) {
        let index = slot.call.index();
        let mut slots = self.slots.lock();
        let call = slots.place(index).and_then(Option::take);
        if slots.closed {
            slots.forget(index);
            drop(slots);
            drop(slot);
        } else {
            // Never more than the capacity: `fill` made no more.
            let _ = slots.free.push_within_capacity(slot);
            drop(slots);
        }
        // Outside the lock: its Receive is posted again.
        drop(call);
    }

    /// Frees what is not with SUNRPC.
    pub(super) fn clear(&self) {
        loop {
            let mut slots = self.slots.lock();
            slots.closed = true;
            let Some(slot) = slots.free.pop() else { return };
            slots.forget(slot.call.index());
            drop(slots);
            drop(slot);
        }
    }
}
