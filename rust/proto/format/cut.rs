// SPDX-License-Identifier: GPL-2.0

//! Division of memory into segments.

/// The limits on size and number of the segments into which memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentLimits {
    /// The size of a page in octets. Memory is divided at page boundaries.
    pub(crate) page: usize,
    /// The number of pages that one registration can hold.
    pub(crate) depth: usize,
    /// The largest segment in octets (Version Two, 5.2.3).
    pub(crate) longest: usize,
    /// The largest number of segments in the header of a Call (Version Two, 5.2.4).
    pub(crate) most: usize,
}

impl SegmentLimits {
    /// Returns the largest number of segments in the header of a Call. It is zero if a segment
    /// cannot hold even one page, since memory is not divided within a page.
    pub(crate) const fn header_segments(&self) -> usize {
        if self.longest < self.page {
            0
        } else {
            self.most
        }
    }

    /// Returns a number of segments that is sufficient for `len` octets that begin at `offset` in a
    /// page. Each segment but the last ends at a page boundary, and each but the first begins at
    /// one.
    pub(crate) fn segments(&self, offset: usize, len: usize) -> usize {
        if len == 0 {
            return 0;
        }
        // Most are that short, and two pages at most.
        if offset < self.page && len <= self.page && len <= self.longest && self.depth > 1 {
            return 1;
        }
        let page = self.page.max(1);
        let pages = offset.saturating_add(len).div_ceil(page);
        if pages <= self.depth && len <= self.longest {
            return 1;
        }
        let each = self.depth.min(self.longest.checked_div(page).unwrap_or(0));
        pages.div_ceil(each.max(1))
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_cut)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// The limits of a device that registers the largest payload as one region.
    const CUT: SegmentLimits = SegmentLimits {
        page: 4096,
        depth: 257,
        longest: usize::MAX,
        most: usize::MAX,
    };

    #[test]
    fn a_region_is_a_segment() {
        for (offset, len, segments) in [
            (0, 0, 0),
            (0, 1, 1),
            (4095, 2, 1),
            (0, 1 << 20, 1),
            (4095, 1 << 20, 1),
            (0, (1 << 20) + 4096, 1),
            (1, (1 << 20) + 4096, 2),
            (0, 4 << 20, 4),
        ] {
            assert_eq!(CUT.segments(offset, len), segments);
        }
    }

    /// Version Two, section 5.2.3: the peer's segments are shorter than our regions.
    #[test]
    fn segments_are_no_longer_than_the_peer_wants() {
        for (longest, offset, len, segments) in [
            (1 << 20, 4095, 1 << 20, 1),
            (1 << 20, 0, (1 << 20) + 1, 2),
            (65_536, 0, 1 << 20, 16),
            (65_536, 100, 1 << 20, 17),
            (65_535, 0, 1 << 20, 18),
            (65_536, 0, 70_000, 2),
            (4096, 0, 8192, 2),
            (4096, 4000, 200, 1),
            (100, 4000, 200, 2),
        ] {
            let cut = SegmentLimits { longest, ..CUT };
            assert_eq!(cut.segments(offset, len), segments);
        }
    }

    /// The count is sufficient for code that adds page after page to a segment as long as they fit.
    #[test]
    fn there_are_enough_segments() {
        for longest in [4096, 5000, 12_288, 20_000, 65_536, usize::MAX] {
            for depth in [1, 2, 3, 16, 257] {
                for offset in [0, 1, 2048, 4095] {
                    for len in [1, 4096, 4097, 8191, 70_000, 300_001] {
                        let cut = SegmentLimits {
                            depth,
                            longest,
                            ..CUT
                        };
                        let (mut at, mut left, mut taken) = (offset, len, 0_usize);
                        while left > 0 {
                            let (mut total, mut pages) = (0, 0);
                            while left > 0 && pages < depth {
                                let fragment = left.min(4096_usize.saturating_sub(at));
                                if pages > 0 && fragment.saturating_add(total) > longest {
                                    break;
                                }
                                total = fragment.saturating_add(total);
                                pages = pages.saturating_add(1);
                                left = left.saturating_sub(fragment);
                                at = 0;
                            }
                            taken = taken.saturating_add(1);
                        }
                        assert!(taken <= cut.segments(offset, len));
                    }
                }
            }
        }
    }

    /// A device that registers nothing is taken for one that registers single pages.
    #[test]
    fn without_a_depth_each_page_is_a_segment() {
        let cut = SegmentLimits { depth: 0, ..CUT };
        for (offset, len, segments) in [(0, 4096, 1), (4095, 2, 2), (1, 8192, 3)] {
            assert_eq!(cut.segments(offset, len), segments);
        }
    }

    #[test]
    fn nothing_is_cut_within_a_page() {
        for (longest, most) in [(0, 0), (4095, 0), (4096, 9), (usize::MAX, 9)] {
            let cut = SegmentLimits {
                longest,
                most: 9,
                ..CUT
            };
            assert_eq!(cut.header_segments(), most);
        }
    }
}
