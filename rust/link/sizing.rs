// SPDX-License-Identifier: GPL-2.0

//! The sizes of a connection, from the wishes of the transport and the limits of the device.

use crate::endpoint::{
    QueueSizes,
    Sizes,
    RECEIVE_BATCH, //
};
use crate::kext::prelude::*;
use crate::proto::props::Properties;
use crate::rdma::device::DeviceLimits;

/// The largest payload of one RPC, in octets: what NFS caps its read and write sizes at.
pub(crate) const MAX_PAYLOAD: usize = 1 << 20;

/// Pages of the largest payload that does not begin on a page boundary.
const MAX_PAYLOAD_PAGES: u32 = (MAX_PAYLOAD / PAGE_SIZE) as u32 + 1;

/// Octets of the largest segment that there is: a whole region.
pub(crate) const MAX_SEGMENT_SIZE: u32 = MAX_PAYLOAD_PAGES * PAGE_SIZE as u32;

/// The most segments that one chunk of ours has. With a whole header of such Read segments (24
/// octets each) the smallest inline threshold still has room for an RPC message.
pub(crate) const MAX_SEGMENTS: u32 = 16;

/// Reverse-direction Calls that may be under way at once; their number is what we grant the peer
/// (RFC 8167 section 4.1).
pub(crate) const REVERSE_CREDITS: u32 = 16;

/// Receives kept for the reverse direction: twice its credits, so that a peer that sends again
/// after it gave one of its Calls up does not find the queue empty.
pub(crate) const REVERSE_RECEIVES: u32 = 2 * REVERSE_CREDITS;

/// RDMA Reads that may be under way at once for the Read chunks of reverse-direction Calls.
pub(crate) const REVERSE_READS: u8 = 4;

/// The most Read chunks, and the most Write chunks, of a reverse-direction Call.
pub(crate) const REVERSE_CHUNKS: u32 = 16;

/// Memory regions of the core's for the RDMA Reads of one Call beyond those that each segment
/// takes one of. They are for segments that are longer than such a region, which holds 1 MiB: a
/// Call is 4 MiB long at most, and a little more.
const LONG_SEGMENTS: u32 = 4;

/// The most segments in the header of a Call, whatever the device: more than fit a message.
const MOST_SEGMENTS: u32 = 256;

/// Returns how many memory regions of the core's Reads and Writes need at most, if `segments` of
/// one Call or as many Calls are moved at once. No peer is kept from what it may take for granted
/// (section 5.2.4 of Version Two).
pub(crate) fn transfer_regions(segments: u32, limits: &DeviceLimits) -> u32 {
    segments
        .max(Properties::DEFAULT.segment_count)
        .saturating_add(LONG_SEGMENTS)
        .min(limits.queue_depth / 8)
}

/// Returns the most segments that a Call may have if there are `regions` memory regions of the
/// core's: what is told to a peer of Version Two (section 5.2.4). Over iWARP each Read takes a
/// region.
pub(crate) fn most_segments(regions: u32, limits: &DeviceLimits) -> u32 {
    if limits.iwarp {
        regions
            .saturating_sub(LONG_SEGMENTS)
            .clamp(1, MOST_SEGMENTS)
    } else {
        MOST_SEGMENTS
    }
}

/// Returns how many work requests of RDMA Reads may be posted at a time, if the peer answers
/// `depth` of them: as many again, for which it need not be waited then. Over iWARP each has a
/// registration and an invalidation.
pub(crate) fn reads_posted(depth: u8, limits: &DeviceLimits) -> u32 {
    let each = if limits.iwarp { 3 } else { 1 };
    2 * each * u32::from(depth)
}

/// Regions that one credit may use. One is enough for an aligned payload on most devices.
const REGIONS_PER_CREDIT: u32 = 4;

/// The fewest credits that are of use.
const MIN_CREDITS: u32 = 2;

/// The wishes of the transport.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Calls under way at once.
    pub(crate) credits: u32,
    /// Octets that we may send inline, header included.
    pub(crate) inline_send: u32,
    /// Octets that the peer may send inline, header included.
    pub(crate) inline_receive: u32,
    /// Pages per memory region at most; 0 for what the device can do.
    pub(crate) region_pages: u32,
}

/// Why a device can't be used at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unfit {
    /// It has no fast registration of memory.
    NoFastRegistration,
    /// Its regions, or those that the administrator wants, are too small for the largest payload.
    SmallRegions,
    /// Its queues are too small.
    SmallQueues,
}

impl Unfit {
    /// Returns its name, for people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NoFastRegistration => "no fast memory registration",
            Self::SmallRegions => {
                "memory regions, or max_region_pages, too small for 1 MiB in one chunk"
            }
            Self::SmallQueues => "queues too small",
        }
    }
}

/// Fits what is wanted to the device.
///
/// # Errors
///
/// Why it does not fit. To try again is no use.
pub(crate) fn choose(
    wanted: &Wanted,
    limits: &DeviceLimits,
) -> core::result::Result<(Wanted, Sizes), Unfit> {
    if !limits.memory_management || limits.fast_reg_pages == 0 || limits.send_sges == 0 {
        return Err(Unfit::NoFastRegistration);
    }
    let mut region_depth = limits.fast_reg_pages.min(MAX_PAYLOAD_PAGES);
    if wanted.region_pages > 0 {
        region_depth = region_depth.min(wanted.region_pages);
    }
    // The largest payload, and a Reply's head and tail, within one chunk.
    let regions_per_payload = MAX_PAYLOAD_PAGES.div_ceil(region_depth);
    if regions_per_payload + 2 > MAX_SEGMENTS {
        return Err(Unfit::SmallRegions);
    }

    // One work request of each queue is kept for the marker of a drain.
    let depth = limits.queue_depth.saturating_sub(1);
    let receives_beside = REVERSE_RECEIVES + RECEIVE_BATCH;
    let mut credits = wanted.credits.min(depth.saturating_sub(receives_beside));
    // Room for one full-size Call in flight at the least, whatever the device.
    // Two chunks' registrations, their fences, and the Send.
    let largest_call = 4 * MAX_SEGMENTS + 1;
    if depth < largest_call + REVERSE_CREDITS {
        return Err(Unfit::SmallQueues);
    }
    let send_queue = loop {
        // A Send, a registration and its fence each; more registrations wait for room.
        let needed = (credits + REVERSE_CREDITS) * 3 + largest_call;
        if needed <= depth {
            break needed;
        }
        if credits <= MIN_CREDITS {
            break depth;
        }
        credits = (credits / 2).max(MIN_CREDITS);
    };
    if credits < MIN_CREDITS {
        return Err(Unfit::SmallQueues);
    }

    let sizes = Sizes {
        receives: credits + receives_beside,
        // Up to a batch of all may be idle.
        first_receives: credits + REVERSE_RECEIVES,
        counts_receives: false,
        receives_per_credit: 1,
        receive_size: wanted.inline_receive as usize,
        may_enlarge: false,
        sends: credits + REVERSE_CREDITS,
        first_sends: credits + REVERSE_CREDITS,
        // There are enough from the start: those in use at a time, by the holder of the send lock
        // and by the handler of Receives, are always fewer than those that are neither posted nor
        // about to be free again.
        kept_sends: 0,
        send_size: wanted.inline_send as usize,
        send_queue: QueueSizes {
            depth: send_queue,
            // Replies to the server's Calls wait as Calls do.
            kept: 0,
            reads: 0,
        },
        region_depth,
        regions: credits * REGIONS_PER_CREDIT + MAX_SEGMENTS,
        transfer_sges: 1,
        chain: send_queue / 2,
        transfers: 0,
        segments: 0,
    };
    Ok((Wanted { credits, ..*wanted }, sizes))
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_link_sizing)]
mod tests {
    use super::*;
    use crate::kext::errno::EOPNOTSUPP;
    use crate::link::parts::MAX_PARTS;
    use crate::proto::window::most_parts;

    const DEVICE: DeviceLimits = DeviceLimits {
        memory_management: true,
        fast_reg_pages: 512,
        queue_depth: 16_384,
        srq_depth: 0,
        send_sges: 32,
        inbound_reads: 128,
        outbound_reads: 128,
        iwarp: false,
    };
    const WANTED: Wanted = Wanted {
        credits: 128,
        inline_send: 4096,
        inline_receive: 4096,
        region_pages: 0,
    };

    #[test]
    fn one_region_holds_the_largest_payload() -> Result {
        let (_, sizes) = fits(&WANTED, &DEVICE)?;
        // One more than fit exactly, for a payload that does not begin with a page.
        assert_eq!(sizes.region_depth as usize, (1 << 20) / PAGE_SIZE + 1);
        Ok(())
    }

    #[test]
    fn the_administrator_may_want_shallow_regions() -> Result {
        let wanted = Wanted {
            region_pages: 32,
            ..WANTED
        };
        let depth = fits(&wanted, &DEVICE)?.1.region_depth;
        assert_eq!(depth, MAX_PAYLOAD_PAGES.min(32));
        // Two of the segments are for a Reply's head and tail. Where pages are large no depth is
        // too small.
        let least = MAX_PAYLOAD_PAGES.div_ceil(MAX_SEGMENTS - 2);
        let chosen = |region_pages| {
            let wanted = Wanted {
                region_pages,
                ..WANTED
            };
            choose(&wanted, &DEVICE).err()
        };
        assert_eq!(chosen(least), None);
        for shallow in 1..least {
            assert_eq!(chosen(shallow), Some(Unfit::SmallRegions));
        }
        Ok(())
    }

    #[test]
    fn a_device_without_fast_registration_is_refused() {
        let device = DeviceLimits {
            memory_management: false,
            ..DEVICE
        };
        assert_eq!(
            choose(&WANTED, &device).err(),
            Some(Unfit::NoFastRegistration)
        );
    }

    #[test]
    fn queues_never_exceed_the_device() -> Result {
        for queue_depth in [100, 150, 200, 400, 1000, 4096] {
            let device = DeviceLimits {
                queue_depth,
                ..DEVICE
            };
            let (wanted, sizes) = fits(&WANTED, &device)?;
            assert!(sizes.send_queue.depth < queue_depth);
            assert!(sizes.receives < queue_depth);
            assert!(wanted.credits >= 2);
        }
        Ok(())
    }

    /// A sender that finds too few Send buffers can wait for a completion: what is posted behind
    /// the last signaled Send, up to a quarter, and what others have lent and may give back
    /// unposted, leave enough for the longest message. Those are an error that the handler of
    /// Receives sends, and a message of the session's; a thread that sends Calls and Replies has
    /// the send lock.
    #[test]
    fn nobody_waits_for_a_buffer_that_comes_back_unposted() -> Result {
        for queue_depth in [100, 150, 200, 400, 1000, 16_384] {
            let device = DeviceLimits {
                queue_depth,
                ..DEVICE
            };
            let sizes = fits(&WANTED, &device)?.1;
            assert_eq!(sizes.first_sends, sizes.sends);
            assert!(sizes.sends - sizes.sends / 4 - 2 >= MAX_PARTS as u32);
        }
        Ok(())
    }

    /// RFC 8166 section 3.3.1, RFC 8167 section 4.3.1: for each Reply that may come, and for each
    /// Call that was granted.
    #[test]
    fn there_is_a_receive_for_all_that_may_come() -> Result {
        for queue_depth in [150, 200, 400, 1000, 16_384] {
            let device = DeviceLimits {
                queue_depth,
                ..DEVICE
            };
            let (wanted, sizes) = fits(&WANTED, &device)?;
            assert!(sizes.receives >= wanted.credits + REVERSE_CREDITS);
            assert_eq!(sizes.receive_size, wanted.inline_receive as usize);
        }
        Ok(())
    }

    /// A server's Reply in parts waits until all of it is let out, and our Replies to its Calls may
    /// wait for credits that it gives only then. So it has to be let out while all of its Calls
    /// hold their Receives: half of the window that is left is renewed, and one Receive is kept for
    /// the message beyond.
    #[test]
    fn replies_in_parts_are_let_out_while_calls_hold_receives() -> Result {
        for credits in [MIN_CREDITS, 16, 128] {
            let (_, sizes) = fits(&Wanted { credits, ..WANTED }, &DEVICE)?;
            let left = sizes.receives - RECEIVE_BATCH - REVERSE_CREDITS - 1;
            assert!(most_parts(left) as usize >= MAX_PARTS);
        }
        Ok(())
    }

    /// Over iWARP each segment that is read takes a region, and a long one a few.
    #[test]
    fn a_peer_is_told_no_more_segments_than_there_are_regions_for() {
        let iwarp = DeviceLimits {
            iwarp: true,
            ..DEVICE
        };
        for segments in [1, 4, 16, 32, 64, 300] {
            let regions = transfer_regions(segments, &iwarp);
            let told = most_segments(regions, &iwarp);
            assert!(told + LONG_SEGMENTS <= regions);
            assert!(told >= segments.clamp(Properties::DEFAULT.segment_count, MOST_SEGMENTS));
            assert_eq!(most_segments(regions, &DEVICE), MOST_SEGMENTS);
        }
        let small = DeviceLimits {
            queue_depth: 100,
            ..iwarp
        };
        assert_eq!(transfer_regions(64, &small), 12);
        assert_eq!(most_segments(12, &small), 8);
    }

    fn fits(wanted: &Wanted, limits: &DeviceLimits) -> Result<(Wanted, Sizes)> {
        choose(wanted, limits).map_err(|_| EOPNOTSUPP)
    }
}
