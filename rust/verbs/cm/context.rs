// SPDX-License-Identifier: GPL-2.0

//! What the handler of a CM id and who waits for it have in common: how far the connection has come.

use crate::kext::errno::ESHUTDOWN;
use crate::observe::trace;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full};
use kernel::sync::{new_condvar, new_mutex, Arc, CondVar, CondVarTimeoutResult, Mutex};
use kernel::time::{msecs_to_jiffies, Msecs};

/// How much private data a CM message carries to us at most: what InfiniBand leaves of it to the passive side's
/// answer.
const MAX_PRIVATE_DATA: usize = 196;

/// Told when an established connection is lost.
pub(crate) trait ConnectionEvents: Send + Sync + 'static {
    /// The peer disconnected, the address changed or the device goes away. Runs in the CM's handler: it must
    /// not wait for the connection's teardown.
    fn lost(&self);

    /// The connection is up. For the passive side, which does not wait for it. Runs in the CM's handler.
    fn established(&self) {}

    /// By what number trace events name the connection.
    fn number(&self) -> trace::Number;
}

/// What the peer said when it accepted.
pub(crate) struct Accepted {
    /// The private data, and zeroes behind it.
    data: [u8; MAX_PRIVATE_DATA],
    /// How long it is.
    len: usize,
    /// How many RDMA Reads of ours it answers at once.
    reads: u8,
}

impl Accepted {
    /// Copies private data, of which no more than [`MAX_PRIVATE_DATA`] octets can be there.
    /// `reads` RDMA Reads of ours are answered at once.
    pub(super) fn new(data: &[u8], reads: u8) -> Self {
        let mut accepted = Self {
            data: [0; MAX_PRIVATE_DATA],
            len: data.len().min(MAX_PRIVATE_DATA),
            reads,
        };
        for (to, from) in accepted.data.iter_mut().zip(data) {
            *to = *from;
        }
        accepted
    }

    /// Whether the peer answers RDMA Reads.
    pub(crate) fn answers_reads(&self) -> bool {
        self.reads > 0
    }

    /// The private data of the peer. InfiniBand pads it with zeroes.
    pub(crate) fn private_data(&self) -> &[u8] {
        self.data.get(..self.len).unwrap_or(&[])
    }
}

/// How far a connection has come.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per connection, and an event can't wait for memory"
)]
enum Phase {
    /// A step was begun, its event has not come.
    Waiting,
    /// The step was done.
    Done,
    /// The peer accepted. The data is taken by who waits.
    Established(Option<Accepted>),
    /// The step failed, or the connection is lost.
    Failed(Error),
}

/// What the CM's handler works on.
#[pin_data]
pub(in crate::verbs) struct Context<H: ConnectionEvents> {
    /// How far the connection has come.
    #[pin]
    phase: Mutex<Phase>,
    /// Signaled when `phase` has changed.
    #[pin]
    changed: CondVar,
    /// Set once the loss was reported, or once nobody wants to hear of it any more.
    reported: Atomic<bool>,
    /// Who is told.
    handler: Arc<H>,
}

impl<H: ConnectionEvents> Context<H> {
    /// Nothing was begun yet.
    pub(super) fn new(handler: Arc<H>) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                phase <- new_mutex!(Phase::Waiting, "rpcrdma::CmId::phase"),
                changed <- new_condvar!("rpcrdma::CmId::changed"),
                reported: Atomic::new(false),
                handler,
            }),
            GFP_KERNEL,
        )
    }

    /// Reports that the connection is lost, once.
    pub(in crate::verbs) fn lost(&self) {
        if !self.reported.xchg(true, Full) {
            trace::lost(self.number());
            self.handler.lost();
        }
    }

    /// From now on no loss is reported: the owner ends the connection itself.
    pub(in crate::verbs) fn silence(&self) {
        self.reported.xchg(true, Full);
    }

    /// By what number trace events name the connection.
    pub(in crate::verbs) fn number(&self) -> trace::Number {
        self.handler.number()
    }

    /// Who handles the events of this connection.
    pub(in crate::verbs) fn handler(&self) -> &Arc<H> {
        &self.handler
    }

    /// The step that is waited for is done.
    pub(super) fn set_done(&self) {
        self.set(Phase::Done);
    }

    /// The peer has accepted.
    pub(super) fn set_established(&self, accepted: Accepted) {
        self.set(Phase::Established(Some(accepted)));
    }

    /// A step is about to begin.
    ///
    /// # Errors
    ///
    /// What has failed already.
    pub(super) fn begin(&self) -> Result {
        let mut phase = self.phase.lock();
        if let Phase::Failed(error) = *phase {
            return Err(error);
        }
        *phase = Phase::Waiting;
        Ok(())
    }

    /// Waits for the end of a step. Returns what the peer said, if that was it.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, `EINTR`, or what has failed.
    pub(super) fn wait(&self, timeout: Msecs) -> Result<Option<Accepted>> {
        let mut left = msecs_to_jiffies(timeout);
        let mut phase = self.phase.lock();
        loop {
            match &mut *phase {
                Phase::Done => return Ok(None),
                Phase::Established(accepted) => return Ok(accepted.take()),
                Phase::Failed(error) => return Err(*error),
                Phase::Waiting => {}
            }
            left = match self.changed.wait_interruptible_timeout(&mut phase, left) {
                CondVarTimeoutResult::Woken { jiffies } => jiffies,
                CondVarTimeoutResult::Signal { .. } => return Err(EINTR),
                CondVarTimeoutResult::Timeout => {
                    // The event may have come with the clock's last tick.
                    if matches!(*phase, Phase::Waiting) {
                        return Err(ETIMEDOUT);
                    }
                    0
                }
            };
        }
    }

    /// Ends a step, unless it has failed.
    fn set(&self, phase: Phase) {
        let mut now = self.phase.lock();
        // A failure is final: a step that another thread is just beginning must not hide it.
        if !matches!(*now, Phase::Failed(_)) {
            *now = phase;
        }
        drop(now);
        self.changed.notify_all();
    }

    /// A failure ends the step that is waited for, or the connection.
    pub(super) fn fail(&self, error: Error) {
        let mut now = self.phase.lock();
        let established = matches!(*now, Phase::Established(_));
        let first = !matches!(*now, Phase::Failed(_));
        if first {
            *now = Phase::Failed(error);
        }
        drop(now);
        self.changed.notify_all();
        if established {
            self.lost();
        }
    }
}

/// Lets another thread end a wait in a CM id.
pub(crate) struct AbortHandle<H: ConnectionEvents>(pub(super) Arc<Context<H>>);

impl<H: ConnectionEvents> AbortHandle<H> {
    /// Makes the current and every later step fail with `ESHUTDOWN`.
    pub(crate) fn abort(&self) {
        let mut phase = self.0.phase.lock();
        *phase = Phase::Failed(ESHUTDOWN);
        drop(phase);
        self.0.changed.notify_all();
    }
}
