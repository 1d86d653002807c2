// SPDX-License-Identifier: GPL-2.0

//! The wait of a thread for memory regions for the RDMA Writes of a Reply.
//!
//! No device needs regions for those; an administrator may have the core use them (`force_mr` of
//! `ib_core`). All other waits of a server hold no thread.
//!
//! A thread sets `is_waiting` and reads the counter `returns` before it looks whether anybody else
//! has regions, and sleeps only as long as the counter stays the same. Whatever comes back, and the
//! end of the connection, counts it up first and then wakes. The device ends an RDMA Write that is
//! not acknowledged; should it not, the connection is ended after a while.

use crate::kext::prelude::*;
use crate::sunrpc::svc::SvcXprt;
use kernel::sync::{
    new_condvar,
    CondVar,
    CondVarTimeoutResult, //
};
use kernel::time::{
    msecs_to_jiffies,
    Jiffies,
    Msecs, //
};

/// The longest wait of a thread for memory regions for one Reply, in milliseconds: in all, or a
/// client whose Writes end one by one could have it wait for ever. The device should have given up
/// on one before.
const LONGEST: Msecs = 20_000;

/// The threads of a connection that wait, one of them at a time for regions.
#[pin_data]
pub(super) struct Patience {
    /// Set while a thread waits, or is about to; nearly never. Changed by the holder of `turn`
    /// only. A transfer ends under the lock of the Send Queue, under which the thread looks for
    /// transfers after it has set this; so the code that ends one sees it.
    is_waiting: Atomic<bool>,
    /// Counts what came back meanwhile, memory regions above all; and the end of the connection,
    /// after which nothing will.
    #[pin]
    returns: SpinLock<u64>,
    /// Signaled when `returns` has changed.
    #[pin]
    returned: CondVar,
    /// Held by the thread that waits.
    #[pin]
    turn: Mutex<()>,
}

impl Patience {
    /// Nobody waits yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            is_waiting: Atomic::new(false),
            returns <- new_spinlock!(0, "rpcrdma::Patience::returns"),
            returned <- new_condvar!("rpcrdma::Patience::returned"),
            turn <- new_mutex!((), "rpcrdma::Patience::turn"),
        })
    }

    /// Something came back, perhaps a region. Has a thread that waits look again. Any context.
    #[inline]
    pub(super) fn wake(&self) {
        if self.is_waiting.load(Relaxed) {
            self.wake_all();
        }
    }

    /// The connection is at its end. Has every thread look, one also that is about to wait and has
    /// not said so yet: it looks at the connection under this lock. Any context.
    pub(super) fn wake_all(&self) {
        let mut returns = self.returns.lock();
        *returns = returns.wrapping_add(1);
        drop(returns);
        self.returned.notify_all();
    }

    /// Tries something until it finds the memory regions that it wants, which others have that
    /// `has_others` tells of. `close` ends the connection after a wait in vain. Sleeps.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if they are too few even when nobody else has any, `ENOTCONN` if the connection
    /// ends before; else what `attempt` returns.
    pub(super) fn attempt<R>(
        &self,
        xprt: &SvcXprt,
        has_others: impl Fn() -> bool,
        close: impl Fn(),
        mut attempt: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        match attempt() {
            Err(EAGAIN) => {}
            other => return other,
        }
        // One at a time, or two might for ever take from each other what both want.
        let turn = self.turn.lock();
        if xprt.is_closing() {
            // The thread that had the turn before may have waited in vain.
            return Err(ENOTCONN);
        }
        let mut left = msecs_to_jiffies(LONGEST);
        self.is_waiting.store(true, Relaxed);
        let result = loop {
            match attempt() {
                Err(EAGAIN) => {}
                other => break other,
            }
            // Read now: what the attempt itself has given back is nothing to wait for.
            let seen = *self.returns.lock();
            if has_others() {
                if let Err(error) = self.wait(xprt, seen, &mut left) {
                    // Those behind us must not wait as long again.
                    close();
                    break Err(error);
                }
                continue;
            }
            match attempt() {
                Err(EAGAIN) if has_others() => {}
                other => break other,
            }
        };
        self.is_waiting.store(false, Relaxed);
        drop(turn);
        result
    }

    /// Waits until more has come back than `seen`, but not for more than what is `left` of the
    /// time, in jiffies.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection ends before, or the time is over.
    fn wait(&self, xprt: &SvcXprt, seen: u64, left: &mut Jiffies) -> Result {
        let mut returns = self.returns.lock();
        while *returns == seen {
            // The code that closes the connection says so here afterwards.
            if xprt.is_closing() {
                return Err(ENOTCONN);
            }
            let outcome = self
                .returned
                .wait_interruptible_timeout(&mut returns, *left);
            match outcome {
                CondVarTimeoutResult::Woken { jiffies } => *left = jiffies,
                _ => return Err(ENOTCONN),
            }
        }
        Ok(())
    }
}
