// SPDX-License-Identifier: GPL-2.0

//! Putting an RPC message together that comes in parts (section 6.6.2 of the draft).
//!
//! # Who owns what, and what ends it
//!
//! The session knows which part may come next, and counts octets. Here they are kept: a connection
//! has one [`Assembly`], which is used by the handler of its Receives and by nobody else, so there
//! is no lock in it. A part is copied as soon as it arrives, and its Receive goes
//! back. The finished message, a [`Whole`], belongs to the Call or Reply that it is.
//!
//! The first part tells how long the message is. Before any octet of it is kept, memory for all of
//! it is allocated, within a bound for one message and bounds for all that are kept ([`Share`]); a
//! message for which there is none costs the connection, so that it is sent again on another. Load
//! alone must not lead to that: from half of the bound on clients get credits for their own shares
//! only, and one at a time when these are used up, so that they use chunks instead
//! ([`super::channel`]). A peer that begins a sequence and does not go on
//! loses its connection, see [`super::channel::CHECK_INTERVAL`].
//!
//! The handler of Receives allocates that memory, and may sleep for it, but others wait behind it
//! on the same CQ. So it has to be single pages, and not several in a row, which the kernel might
//! have to make room for first.
//!
//! # Whose memory it is
//!
//! A connection may always keep [`SHARE`] octets: its own share. Only what it keeps beyond is taken
//! out of what all have together ([`MAX_ALL`]). So a peer that has begun messages on many
//! connections, or has sent many that no thread has taken yet, takes nothing from the share of
//! another. How much there is of all shares follows from the number of connections, as it does for
//! Receives.

use crate::kext::handover::Handover;
use crate::kext::memalloc::{
    self,
    NoFs, //
};
use crate::kext::prelude::*;
use kernel::task::might_sleep;

/// The longest RPC message that may come in parts, in octets: three messages of the size that ours
/// have, which is room for an access control list of NFSv3.
pub(crate) const MAX_WHOLE: u32 = 36 << 10;

/// Octets that each connection may keep whatever others do: four of the longest messages. A peer
/// says less than that to prove who it is.
const SHARE: usize = 4 * MAX_WHOLE as usize;

/// Octets of all such messages together that are beyond the shares of their connections.
const MAX_ALL: usize = 64 << 20;

/// Octets that are kept beyond the shares.
static BEYOND: Atomic<usize> = Atomic::new(0);

/// The memory that is kept of one connection. Its messages have references to it.
#[pin_data]
pub(super) struct Share {
    /// Octets.
    kept: Atomic<usize>,
    /// Memory for the next message, if it is `saving`. Kernels are often made to clear all that
    /// they allocate, which is as much work as to copy the message. It does not count as kept.
    #[pin]
    spare: SpinLock<Option<KVVec<u8>>>,
    /// Set if the memory of a message is kept for the next one. A client has few connections, a
    /// server many.
    saving: bool,
}

impl Share {
    /// Nothing is kept yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(saving: bool) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                kept: Atomic::new(0),
                spare <- new_spinlock!(None, "rpcrdma::Share::spare"),
                saving,
            }),
            GFP_KERNEL,
        )
    }

    /// Memory for `len` octets, with none in it. Sleeps.
    fn memory(&self, len: usize) -> Result<KVVec<u8>> {
        let spare = self.spare.lock().take();
        match spare {
            Some(memory) if memory.capacity() >= len => Ok(memory),
            // If it is too short it goes.
            _ => Ok(KVVec::with_capacity(len, GFP_KERNEL)?),
        }
    }

    /// Memory is not used any more. Sleeps.
    fn give_back(&self, mut memory: KVVec<u8>) {
        if self.saving && memory.capacity() <= MAX_WHOLE as usize {
            memory.clear();
            let former = self.spare.lock().replace(memory);
            drop(former);
        }
    }
}

/// Octets that count as kept. Dropped, they do not any more.
struct Counted {
    /// The number of octets.
    len: usize,
    /// The share of its connection.
    share: Arc<Share>,
    /// Set if they count in [`BEYOND`].
    beyond: bool,
}

impl Counted {
    /// Counts `len` octets, if that many more may be kept.
    fn new(share: &Arc<Share>, len: usize) -> Option<Self> {
        let own = share.kept.fetch_add(len, Relaxed).saturating_add(len);
        let counted = Self {
            len,
            share: share.clone(),
            beyond: own > SHARE,
        };
        if !counted.beyond {
            return Some(counted);
        }
        let all = BEYOND.fetch_add(len, Relaxed).saturating_add(len);
        (all <= MAX_ALL).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.share.kept.fetch_sub(self.len, Relaxed);
        if self.beyond {
            BEYOND.fetch_sub(self.len, Relaxed);
        }
    }
}

/// Returns whether half of the memory beyond the shares is taken, so that nothing more should be
/// asked for. The rest is for what was promised before.
pub(super) fn is_crowded() -> bool {
    BEYOND.load(Relaxed) > MAX_ALL / 2
}

/// An RPC message, put together or about to be. As long as it is, it counts as kept. To drop it may
/// sleep.
///
/// Is a pointer, since most messages have none.
pub(crate) struct Whole(KBox<Octets>);

/// The octets of a [`Whole`].
struct Octets {
    /// The octets that have come of the message. There is room for all of it.
    bytes: KVVec<u8>,
    /// The length of the message.
    len: usize,
    /// The octets that count.
    counted: Counted,
    /// The handle that a part before the last one has invalidated.
    invalidated: Option<u32>,
}

impl Whole {
    /// Room for a message of `len` octets. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory, or no more may be kept.
    pub(super) fn new(share: &Arc<Share>, len: usize) -> Result<Self> {
        let counted = Counted::new(share, len).ok_or(ENOMEM)?;
        // Writeback may wait for this very message.
        let _nofs = NoFs::enter();
        let octets = Octets {
            bytes: share.memory(len)?,
            len,
            counted,
            invalidated: None,
        };
        Ok(Self(KBox::new(octets, GFP_KERNEL)?))
    }

    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Returns the handle that a part before the last one has invalidated.
    pub(crate) fn invalidated(&self) -> Option<u32> {
        self.0.invalidated
    }

    /// Puts a part at its offset. Returns whether that is its place: parts come in their order.
    pub(super) fn put(&mut self, offset: u32, part: &[u8]) -> bool {
        let octets = &mut *self.0;
        let at = octets.bytes.len();
        // More may have been allocated than was asked for.
        let left = octets.len.saturating_sub(at);
        usize::try_from(offset) == Ok(at)
            && part.len() <= left
            && memalloc::append(&mut octets.bytes, part)
    }
}

impl Drop for Octets {
    fn drop(&mut self) {
        // Whether memory was in one piece depends on chance. Code that drops it under a spinlock
        // must be found out at once.
        might_sleep();
        let memory = core::mem::take(&mut self.bytes);
        self.counted.share.give_back(memory);
    }
}

/// The message of a connection that comes in parts at the moment.
pub(super) struct Assembly {
    /// The part of it that has come. Messages of a connection are taken in one after the other, so
    /// nobody misses it while another adds to it; and mostly there is none, which costs no lock.
    current: Handover<Whole>,
    /// Where it counts.
    share: Arc<Share>,
}

impl Assembly {
    /// None.
    pub(super) const fn new(share: Arc<Share>) -> Self {
        Self {
            current: Handover::new(),
            share,
        }
    }

    /// Begins with a message of `len` octets. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn begin(&self, len: u32) -> Result {
        let whole = Whole::new(&self.share, usize::try_from(len)?)?;
        drop(self.take());
        self.current.put(whole).map_err(|_| EBUSY)
    }

    /// Adds a part at an offset. Returns whether there was a place for it.
    pub(super) fn add(&self, offset: u32, part: &[u8]) -> bool {
        let Some(mut whole) = self.take() else {
            return false;
        };
        let added = whole.put(offset, part);
        // Its place is empty.
        self.current.put(whole).is_ok() && added
    }

    /// Notes that a part of the message has invalidated a handle. Returns whether it was the first
    /// to do so: an RPC has one handle that may be.
    pub(super) fn note_invalidated(&self, handle: u32) -> bool {
        let Some(mut whole) = self.take() else {
            return false;
        };
        let former = whole.0.invalidated.replace(handle);
        self.current.put(whole).is_ok() && former.is_none()
    }

    /// Returns how many octets of the connection's own share are not used.
    pub(super) fn room(&self) -> u32 {
        let room = SHARE.saturating_sub(self.share.kept.load(Relaxed));
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Takes the message out, or what there is of it.
    pub(super) fn take(&self) -> Option<Whole> {
        self.current.take()
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_link_assembly)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_a_message() -> Result {
        let assembly = Assembly::new(Share::new(false)?);
        assembly.begin(6)?;
        assert!(!assembly.add(1, b"a"));
        assert!(assembly.add(0, b"abcd"));
        assert!(!assembly.add(0, b"a"));
        assert!(!assembly.add(4, b"efg"));
        assert!(assembly.add(4, b"ef"));
        let whole = assembly.take().ok_or(EINVAL)?;
        assert_eq!(whole.bytes(), b"abcdef");
        assert_eq!(whole.invalidated(), None);
        assert!(assembly.take().is_none());
        assert!(!assembly.add(0, b"a"));
        Ok(())
    }

    /// Once for each message.
    #[test]
    fn a_part_may_invalidate() -> Result {
        let assembly = Assembly::new(Share::new(false)?);
        assert!(!assembly.note_invalidated(7));
        assembly.begin(6)?;
        assert!(assembly.add(0, b"abcd"));
        assert!(assembly.note_invalidated(7));
        assert!(assembly.add(4, b"ef"));
        assert!(!assembly.note_invalidated(7));
        let whole = assembly.take().ok_or(EINVAL)?;
        assert_eq!(whole.invalidated(), Some(7));
        Ok(())
    }

    #[test]
    fn what_is_kept_is_bounded() -> Result {
        let share = Share::new(false)?;
        let before = BEYOND.load(Relaxed);
        assert!(Whole::new(&share, MAX_ALL + 1).is_err());
        assert_eq!(BEYOND.load(Relaxed), before);
        assert_eq!(share.kept.load(Relaxed), 0);
        let own = Whole::new(&share, SHARE)?;
        assert_eq!(BEYOND.load(Relaxed), before);
        let beyond = Whole::new(&share, 100)?;
        assert_eq!(BEYOND.load(Relaxed), before + 100);
        drop(own);
        assert_eq!(BEYOND.load(Relaxed), before + 100);
        drop(beyond);
        assert_eq!(BEYOND.load(Relaxed), before);
        assert_eq!(share.kept.load(Relaxed), 0);
        Ok(())
    }

    /// Connections that keep nothing have their own share, however much others take.
    #[test]
    fn the_share_of_a_connection_is_its_own() -> Result {
        let (greedy, modest) = (Share::new(false)?, Assembly::new(Share::new(false)?));
        assert_eq!(Assembly::new(greedy.clone()).room(), 4 * MAX_WHOLE);
        let kept = Whole::new(&greedy, 2 * SHARE)?;
        assert_eq!(Assembly::new(greedy.clone()).room(), 0);
        assert_eq!(modest.room(), 4 * MAX_WHOLE);
        modest.begin(MAX_WHOLE)?;
        assert_eq!(modest.room(), 3 * MAX_WHOLE);
        drop(kept);
        assert_eq!(Assembly::new(greedy).room(), 4 * MAX_WHOLE);
        Ok(())
    }

    /// From half of the bound on, clients are throttled.
    #[test]
    fn half_of_the_memory_is_a_crowd() -> Result {
        let share = Share::new(false)?;
        let mut kept = KVec::new();
        while !is_crowded() {
            assert!(BEYOND.load(Relaxed) <= MAX_ALL / 2);
            kept.push(Whole::new(&share, MAX_WHOLE as usize)?, GFP_KERNEL)?;
        }
        assert!(BEYOND.load(Relaxed) > MAX_ALL / 2);
        drop(kept);
        assert!(!is_crowded());
        Ok(())
    }

    /// Peers that have begun as much as may be begun leave the shares of others alone.
    #[test]
    fn nobody_takes_the_share_of_another() -> Result {
        let (greedy, other) = (Share::new(false)?, Share::new(false)?);
        let own = Whole::new(&greedy, SHARE)?;
        // As if there were much more of it.
        BEYOND.fetch_add(MAX_ALL, Relaxed);
        let more = Whole::new(&greedy, MAX_WHOLE as usize).is_ok();
        let mut messages = KVec::new();
        for _ in 0..4 {
            messages.push(Whole::new(&other, MAX_WHOLE as usize), GFP_KERNEL)?;
        }
        let beyond = Whole::new(&other, 1).is_ok();
        BEYOND.fetch_sub(MAX_ALL, Relaxed);
        assert!(!more && !beyond);
        assert!(messages.iter().all(Result::is_ok));
        drop(own);
        assert!(Whole::new(&greedy, SHARE).is_ok());
        Ok(())
    }

    /// A client does not ask the kernel for memory each time.
    #[test]
    fn memory_is_used_again() -> Result {
        for saving in [false, true] {
            let share = Share::new(saving)?;
            let mut whole = Whole::new(&share, 9000)?;
            assert!(whole.put(0, b"octets"));
            drop(whole);
            assert_eq!(share.kept.load(Relaxed), 0);
            assert_eq!(share.spare.lock().is_some(), saving);
            let next = Whole::new(&share, 8000)?;
            assert!(next.bytes().is_empty() && share.spare.lock().is_none());
            drop(next);
            // One that is too short is no use.
            drop(Whole::new(&share, 20_000)?);
            assert!(share
                .spare
                .lock()
                .as_ref()
                .is_none_or(|spare| spare.capacity() >= 20_000));
            // Nor is one of a length that never comes.
            drop(Whole::new(&share, MAX_WHOLE as usize + 1)?);
            assert!(share.spare.lock().is_none());
        }
        Ok(())
    }

    /// No pages in a row are needed. So many there never are, but the module's memory is not that
    /// short.
    #[test]
    fn memory_need_not_be_in_one_piece() -> Result {
        let share = Share::new(false)?;
        let mut whole = Whole::new(&share, 12 << 20)?;
        assert!(whole.put(0, b"begin"));
        assert_eq!(whole.bytes(), b"begin");
        Ok(())
    }
}
