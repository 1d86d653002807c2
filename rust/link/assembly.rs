// SPDX-License-Identifier: GPL-2.0

//! Putting an RPC message together that comes in parts (section 6.6.2 of the draft).
//!
//! # Who owns what, and what ends it
//!
//! The session knows which part may come next, and counts octets. Here they are kept: a connection has one
//! [`Assembly`], which is used by the handler of its Receives and by nobody else, so the lock in it is never waited
//! for. A part is copied as soon as it arrives, and its Receive goes back. The finished message, a [`Whole`], belongs
//! to the Call or Reply that it is.
//!
//! The first part tells how long the message is. Before any octet of it is kept, memory for all of it is allocated,
//! within a bound for one message and a bound for all that the module keeps; a message for which there is none costs
//! the connection, so that it is sent again on another. That is not what load alone shall lead to: from half of the bound on
//! clients get one credit at a time, so that they use chunks instead ([`super::channel`]). A peer that begins a sequence and does not go on loses its
//! connection, see [`super::channel::PATIENCE`].

use crate::kext::memalloc::NoFs;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_spinlock, SpinLock};

/// The longest RPC message that may come in parts, in octets. It is kept in one piece of memory, which gets scarce
/// above a few pages.
pub(crate) const MAX_WHOLE: u32 = 32 << 10;

/// Octets of all such messages together, of all connections: two of the longest for each of a thousand.
const MAX_ALL: usize = 64 << 20;

/// Octets that are kept.
static KEPT: Atomic<usize> = Atomic::new(0);

/// Whether so much is kept that nothing more should be asked for: half of what may be. The rest is for what was promised
/// before.
pub(super) fn is_crowded() -> bool {
    KEPT.load(Relaxed) > MAX_ALL / 2
}

/// An RPC message, put together or about to be. As long as it is, it counts in [`KEPT`].
pub(crate) struct Whole(KVec<u8>);

impl Whole {
    /// Room for a message of `len` octets. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory, or no more may be kept.
    pub(super) fn new(len: usize) -> Result<Self> {
        let before = KEPT.fetch_add(len, Relaxed);
        // Writeback may wait for this very message.
        let _nofs = NoFs::enter();
        let made = match before.saturating_add(len) > MAX_ALL {
            true => Err(ENOMEM),
            false => KVec::from_elem(0, len, GFP_KERNEL).map_err(Error::from),
        };
        made.map(Self).inspect_err(|_| {
            KEPT.fetch_sub(len, Relaxed);
        })
    }

    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Puts octets at an offset. Returns whether there is a place for them.
    pub(super) fn put(&mut self, offset: u32, part: &[u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else {
            return false;
        };
        let rest = self.0.get_mut(offset..);
        let Some(place) = rest.and_then(|rest| rest.get_mut(..part.len())) else {
            return false;
        };
        place.copy_from_slice(part);
        true
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.0.len(), Relaxed);
    }
}

/// The message of a connection that comes in parts at the moment.
#[pin_data]
pub(super) struct Assembly {
    /// What has come of it.
    #[pin]
    current: SpinLock<Option<Whole>>,
}

impl Assembly {
    /// None.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            current <- new_spinlock!(None, "rpcrdma::Assembly::current"),
        })
    }

    /// Begins with a message of `len` octets.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn begin(&self, len: u32) -> Result {
        let whole = Whole::new(usize::try_from(len)?)?;
        let former = self.current.lock().replace(whole);
        drop(former);
        Ok(())
    }

    /// Adds a part at an offset. Returns whether there was a place for it.
    pub(super) fn add(&self, offset: u32, part: &[u8]) -> bool {
        let mut current = self.current.lock();
        match &mut *current {
            Some(whole) => whole.put(offset, part),
            None => false,
        }
    }

    /// Takes the message out if it is complete.
    pub(super) fn take_if(&self, complete: bool) -> Option<Whole> {
        complete.then(|| self.take()).flatten()
    }

    /// Takes the message out, or what there is of it.
    pub(super) fn take(&self) -> Option<Whole> {
        self.current.lock().take()
    }
}

#[kernel::prelude::kunit_tests(rpcrdma_link_assembly)]
mod tests {
    use super::*;
    use kernel::sync::Arc;

    #[test]
    fn parts_become_a_message() -> Result {
        let assembly = Arc::pin_init(Assembly::new(), GFP_KERNEL)?;
        assembly.begin(6)?;
        assert!(assembly.add(0, b"abcd"));
        assert!(!assembly.add(4, b"efg"));
        assert!(assembly.add(4, b"ef"));
        let whole = assembly.take().ok_or(EINVAL)?;
        assert_eq!(whole.bytes(), b"abcdef");
        assert!(assembly.take().is_none());
        assert!(!assembly.add(0, b"a"));
        Ok(())
    }

    #[test]
    fn what_is_kept_is_bounded() -> Result {
        let before = KEPT.load(Relaxed);
        assert!(Whole::new(MAX_ALL + 1).is_err());
        assert_eq!(KEPT.load(Relaxed), before);
        let whole = Whole::new(100)?;
        assert_eq!(KEPT.load(Relaxed), before + 100);
        drop(whole);
        assert_eq!(KEPT.load(Relaxed), before);
        Ok(())
    }
}
