// SPDX-License-Identifier: GPL-2.0

//! The parts of an RPC message that are sent before its last one (section 6.6.2 of the draft).

use crate::endpoint::FirstParts;
use crate::kext::prelude::*;
use crate::link::assembly::MAX_WHOLE;
use crate::proto::continuation::Split;
use crate::proto::v2::{
    Direction,
    Middle,
    MIDDLE_LEN, //
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

/// Makes all parts but the last of an RPC message that is split as `split` says. `copy` copies
/// octets of the message, from the offset on that it is given. Their credit values are not set yet.
/// Sleeps.
///
/// # Errors
///
/// `ENOMEM`; `EMSGSIZE` if it can't be done.
pub(crate) fn before_last(
    direction: Direction,
    xid: u32,
    split: &Split,
    mut copy: impl FnMut(usize, &mut [u8]) -> Option<()>,
) -> Result<FirstParts> {
    let before = || split.parts().filter(|part| !part.is_last());
    let size = |len: u32| Ok::<_, Error>(usize::try_from(len)?.saturating_add(MIDDLE_LEN));
    let total = before().try_fold(0_usize, |sum, part| Ok::<_, Error>(sum + size(part.len)?))?;
    // All but the last of them are as long as the first.
    let longest = before()
        .next()
        .map_or(Err(EMSGSIZE), |first| size(first.len))?;
    let mut parts = FirstParts::new(total, longest)?;
    for (part, message) in before().zip(parts.iter_mut()) {
        let header = Middle {
            direction,
            xid,
            credits: 0,
            remaining: part.remaining,
        };
        let at = header.encode(message).map_err(|_| EMSGSIZE)?;
        let place = message.get_mut(at..size(part.len)?).ok_or(EMSGSIZE)?;
        copy(usize::try_from(part.offset)?, place).ok_or(EMSGSIZE)?;
    }
    Ok(parts)
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_link_parts)]
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

    #[test]
    fn parts_have_the_message_one_behind_the_other() -> Result {
        let whole: [u8; 100] = core::array::from_fn(|at| at as u8);
        for threshold in [36, 60, 100] {
            let split = Split::new(100, 28, threshold).map_err(|_| EINVAL)?;
            let copy = |at: usize, to: &mut [u8]| {
                to.copy_from_slice(whole.get(at..)?.get(..to.len())?);
                Some(())
            };
            let mut parts = before_last(Direction::Reply, 7, &split, copy)?;
            assert_eq!(parts.len() + 1, split.len());
            let mut at = 0;
            for message in parts.iter_mut() {
                assert!(message.len() <= threshold as usize);
                let payload = message.get(MIDDLE_LEN..).ok_or(EINVAL)?;
                assert_eq!(Some(payload), whole.get(at..at + payload.len()));
                at += payload.len();
            }
            let last = split.parts().last().ok_or(EINVAL)?;
            assert_eq!(last.offset as usize, at);
        }
        // A message of one part has none before it.
        let whole = Split::new(8, 28, 100).map_err(|_| EINVAL)?;
        assert!(before_last(Direction::Call, 7, &whole, |_, _| Some(())).is_err());
        Ok(())
    }
}
