// SPDX-License-Identifier: GPL-2.0

//! The parts of an RPC message that are sent before its last one (section 6.6.2 of the draft).

use crate::endpoint::{
    Endpoint,
    EndpointEvents,
    SendBuffer, //
};
use crate::kext::memalloc;
use crate::kext::prelude::*;
use crate::link::assembly::MAX_WHOLE;
use crate::proto::continuation::Split;
use crate::proto::message;
use crate::proto::v2::{
    Direction,
    Middle, //
};

/// In how many parts an RPC message is sent at most, or may come: 32 KiB in messages of the size of
/// a peer that names none (5.2.2).
pub(crate) const MAX_PARTS: usize = 8;

/// The same if there is data in it that could go into a chunk. A registration, an RDMA operation
/// and an invalidation cost more than to copy what one message has room for, but less than a second
/// message.
pub(crate) const DATA_PARTS: u32 = 1;

/// In how many parts an RPC message is sent at most, or may come, if each is a message of up to
/// `threshold` octets: all of them together are never longer than what either end puts together.
pub(crate) fn most_parts(threshold: u32) -> u32 {
    let most = MAX_WHOLE.checked_div(threshold).unwrap_or(1);
    most.clamp(1, MAX_PARTS as u32)
}

/// Parts that are ready to be posted, in their order. Their credit values are not set yet.
pub(crate) struct Middles<H: EndpointEvents> {
    /// Each with its length. The first `count` are there.
    list: [Option<(SendBuffer<H>, usize)>; MAX_PARTS - 1],
    /// The number of parts.
    count: u32,
}

/// Why parts were not made.
pub(crate) enum Unmade {
    /// There are not enough Send buffers at the moment.
    NoBuffers,
    /// It can't be done.
    Impossible,
}

impl<H: EndpointEvents> Middles<H> {
    /// None: the last part is all.
    pub(crate) const fn none() -> Self {
        Self {
            list: [const { None }; MAX_PARTS - 1],
            count: 0,
        }
    }

    /// Makes all parts but the last of what is split as `split` says. `copy` copies octets of the
    /// RPC message, from the offset on that it is given.
    ///
    /// # Errors
    ///
    /// See [`Unmade`].
    pub(crate) fn new(
        endpoint: &Arc<Endpoint<H>>,
        direction: Direction,
        xid: u32,
        split: &Split,
        mut copy: impl FnMut(usize, &mut [u8]) -> Option<()>,
    ) -> Result<Self, Unmade> {
        let mut middles = Self::none();
        for part in split.parts().filter(|part| !part.is_last()) {
            let place = usize::try_from(middles.count)
                .ok()
                .and_then(|index| middles.list.get_mut(index))
                .ok_or(Unmade::Impossible)?;
            let mut buffer = endpoint.send_buffer().ok_or(Unmade::NoBuffers)?;
            let header = Middle {
                direction,
                xid,
                credits: 0,
                remaining: part.remaining,
            };
            let filled = header.encode(&mut buffer).ok().and_then(|header_len| {
                let len = header_len.checked_add(usize::try_from(part.len).ok()?)?;
                copy(
                    usize::try_from(part.offset).ok()?,
                    buffer.get_mut(header_len..len)?,
                )?;
                Some(len)
            });
            *place = Some((buffer, filled.ok_or(Unmade::Impossible)?));
            middles.count = middles.count.saturating_add(1);
        }
        Ok(middles)
    }

    /// The octets of the RPC message that are in the parts, split as `split` says. With it the
    /// parts can be made anew.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn contents(&self, split: &Split) -> Result<KVVec<u8>> {
        let last = split.parts().last().ok_or(EINVAL)?;
        let mut contents = KVVec::with_capacity(usize::try_from(last.offset)?, GFP_KERNEL)?;
        for ((buffer, end), part) in self.list.iter().flatten().zip(split.parts()) {
            let begin = end.checked_sub(usize::try_from(part.len)?);
            let octets = begin.and_then(|begin| buffer.get(begin..*end));
            if !memalloc::append(&mut contents, octets.ok_or(EINVAL)?) {
                return Err(EINVAL);
            }
        }
        Ok(contents)
    }

    /// Returns the number of parts.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// The parts, and empty places behind them.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [Option<(SendBuffer<H>, usize)>] {
        &mut self.list
    }

    /// Sets the credit value of all.
    pub(crate) fn set_credits(&mut self, credits: u32) {
        for (buffer, _) in self.list.iter_mut().flatten() {
            message::set_credits(buffer, credits);
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_link_middles)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_not_longer_than_what_is_put_together() {
        for (threshold, most) in [
            (1024, 8),
            (4096, 8),
            (4608, 8),
            (4612, 7),
            (12_288, 3),
            (18_432, 2),
            (18_436, 1),
            (65_536, 1),
        ] {
            assert_eq!(most_parts(threshold), most);
            assert!(most == 1 || most * threshold <= MAX_WHOLE);
        }
        assert_eq!(most_parts(0), 1);
    }
}
