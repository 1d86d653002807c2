// SPDX-License-Identifier: GPL-2.0

//! Counters over all connections of the server, for `/proc/sys/sunrpc/svc_rdma`.

use crate::sys;

/// A counter of the server. It has 64 bits, and an administrator may set it to zero at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ServerCounter {
    /// RDMA Reads, one for each segment that was read.
    Reads = sys::rpcrdma_svc_stat_RPCRDMA_SVC_STAT_READ,
    /// Messages that were received.
    Receives = sys::rpcrdma_svc_stat_RPCRDMA_SVC_STAT_RECV,
    /// RDMA Writes.
    Writes = sys::rpcrdma_svc_stat_RPCRDMA_SVC_STAT_WRITE,
    /// Times that a message or its RDMA Reads and Writes waited for the Send Queue.
    SendQueueFull = sys::rpcrdma_svc_stat_RPCRDMA_SVC_STAT_SQ_STARVE,
    /// Pauses of a listener before it accepts another connection.
    AcceptsPaced = sys::rpcrdma_svc_stat_RPCRDMA_SVC_STAT_PACED,
}

/// Adds `count` to a counter. May be called from any context.
pub(crate) fn count(counter: ServerCounter, count: u64) {
    if count > 0 {
        // SAFETY: No preconditions.
        unsafe { sys::rpcrdma_sysctl_svc_count(counter as sys::rpcrdma_svc_stat, count) }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_svc_counters)]
mod tests {
    use super::*;
    use crate::kext::errno::EPROTO;
    use kernel::prelude::*;

    /// Reads the value as a program does from the counter's file.
    macro_rules! shown {
        ($counter:expr) => {{
            let mut text = [0u8; 32];
            // SAFETY: The buffer has the length passed.
            let len = unsafe {
                sys::rpcrdma_sysctl_svc_show(
                    $counter as sys::rpcrdma_svc_stat,
                    text.as_mut_ptr().cast(),
                    text.len(),
                )
            };
            let len = usize::try_from(len).map_err(|_| EPROTO)?;
            let line = text.get(..len).ok_or(EPROTO)?;
            let line = core::str::from_utf8(line).map_err(|_| EPROTO)?;
            line.trim_end().parse::<u64>().map_err(|_| EPROTO)?
        }};
    }

    #[test]
    fn a_large_counter_can_be_read() -> Result {
        for counter in [
            ServerCounter::Reads,
            ServerCounter::Receives,
            ServerCounter::Writes,
            ServerCounter::SendQueueFull,
            ServerCounter::AcceptsPaced,
        ] {
            let before = shown!(counter);
            for large in [1_000_000, u64::from(u32::MAX), 123_456_789_012_345] {
                count(counter, large);
                assert_eq!(shown!(counter), before + large);
                // This undoes the count.
                count(counter, large.wrapping_neg());
            }
            assert_eq!(shown!(counter), before);
        }
        Ok(())
    }
}
