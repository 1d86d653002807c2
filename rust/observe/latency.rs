// SPDX-License-Identifier: GPL-2.0

//! Histograms of the time that RPCs take.

use crate::kext::debugfs::lines;
use crate::observe::counters::Counter;
use kernel::{
    seq_file::SeqFile,
    seq_print, //
};

/// The number of steps. The last one has whatever takes longer than 4.3 s.
const STEPS: usize = 24;

/// The upper limit of the first step in nanoseconds, as a power of two. That of each further step
/// is twice as high.
const FIRST: u32 = 10;

/// How many RPCs took how long. Each step is as wide as all those before it together, so the time
/// that a given part of the RPCs has not exceeded is known within a factor of two.
///
/// It is always counted: that costs about thirty instructions for an RPC.
pub(crate) struct Latencies {
    /// The number of RPCs in each step.
    steps: [Counter; STEPS],
    /// The time of all of them together, in nanoseconds.
    total: Counter,
}

impl Latencies {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self {
            steps: [const { Counter::new() }; STEPS],
            total: Counter::new(),
        }
    }

    /// Counts an RPC that took this many nanoseconds.
    #[inline]
    pub(crate) fn count(&self, nanoseconds: i64) {
        // A clock that has gone back is taken for one that has stood still.
        let nanoseconds = nanoseconds.max(0).unsigned_abs();
        if let Some(step) = self.steps.get(step_of(nanoseconds)) {
            step.count();
        }
        self.total.add_value(nanoseconds);
    }

    /// Writes the number of RPCs in each step into a file in debugfs. The name of a step is its
    /// upper limit, which the next step begins with. The last one has no limit. Then the time of
    /// all RPCs together.
    pub(crate) fn show(&self, m: &SeqFile) {
        let [steps @ .., last] = &self.steps;
        for (bits, step) in (FIRST..).zip(steps) {
            seq_print!(m, "below_{}_ns: {}\n", 1_u64 << bits, step.get());
        }
        lines!(m, "longer": last.get(), "total_ns": self.total.get());
    }
}

/// Returns the step that a time in nanoseconds is in.
#[inline]
fn step_of(nanoseconds: u64) -> usize {
    let units = nanoseconds >> FIRST;
    let bits = u64::BITS - units.leading_zeros();
    (bits as usize).min(STEPS - 1)
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_latency)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_before_its_limit() {
        for (nanoseconds, step) in [
            (0, 0),
            (1023, 0),
            (1024, 1),
            (2047, 1),
            (2048, 2),
            ((1 << 32) - 1, 22),
            (1 << 32, 23),
            (u64::MAX, 23),
        ] {
            assert_eq!(step_of(nanoseconds), step);
        }
    }

    #[test]
    fn each_rpc_is_counted_once() {
        let latencies = Latencies::new();
        for nanoseconds in [-1, 5, 3000, 3001, 1 << 40] {
            latencies.count(nanoseconds);
        }
        let counts = [0, 1, 2, STEPS - 1].map(|step| latencies.steps[step].get());
        assert_eq!(counts, [2, 0, 2, 1]);
        assert_eq!(latencies.steps.iter().map(Counter::get).sum::<u64>(), 5);
        assert_eq!(latencies.total.get(), 5 + 3000 + 3001 + (1 << 40));
    }
}
