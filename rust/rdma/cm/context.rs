// SPDX-License-Identifier: GPL-2.0

//! The state that the handler of a CM id and the waiting owner share: how far the connection has
//! come.

use crate::kext::prelude::*;
use crate::sys;
use kernel::{
    sync::{
        new_condvar,
        CondVar,
        CondVarTimeoutResult, //
    },
    time::{
        msecs_to_jiffies,
        Msecs, //
    }, //
};

/// The largest size of private data in a CM message to us: what InfiniBand leaves of it to the
/// passive side's answer.
const MAX_PRIVATE_DATA: usize = 196;

/// Receives the events of a connection.
pub(crate) trait CmEvents: Send + Sync + 'static {
    /// Reports an event of the CM (`enum rdma_cm_event_type`) with its status, before it is
    /// handled.
    fn event(&self, _event: u32, _status: c_int) {}

    /// Reports that the connection was established and is lost, once: the peer has disconnected,
    /// the address has changed, or the device goes away.
    ///
    /// Runs in the CM's handler: it must not wait for the connection's teardown.
    fn connection_lost(&self);

    /// Reports that the device goes away, which waits until the id of the connection is destroyed.
    ///
    /// Called after [`Self::connection_lost`], in the CM's handler: it must not wait for the
    /// connection's teardown.
    fn device_removed(this: &Arc<Self>);

    /// Reports that the connection is up. For the passive side, which does not wait for it.
    ///
    /// Runs in the CM's handler.
    fn connection_established(&self);
}

/// The contents of the peer's acceptance.
pub(crate) struct Accepted {
    /// The private data, and zeroes behind it.
    data: [u8; MAX_PRIVATE_DATA],
    /// The length in octets.
    len: usize,
    /// The number of RDMA Reads of ours that it answers at once.
    reads: u8,
}

impl Accepted {
    /// What comes without private data.
    pub(super) const NOTHING: Self = Self {
        data: [0; MAX_PRIVATE_DATA],
        len: 0,
        reads: 0,
    };

    /// Copies what came with an event. Private data has no more than [`MAX_PRIVATE_DATA`] octets.
    ///
    /// # Safety
    ///
    /// `conn` belongs to an event that is being handled.
    pub(super) unsafe fn new(conn: &sys::rdma_conn_param, reads: u8) -> Self {
        let mut accepted = Self {
            reads,
            ..Self::NOTHING
        };
        if !conn.private_data.is_null() {
            accepted.len = usize::from(conn.private_data_len).min(MAX_PRIVATE_DATA);
            // SAFETY: The CM gives `private_data_len` octets, which stay as they are during the
            // event. There is room for `len` of them.
            unsafe {
                accepted
                    .data
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(conn.private_data.cast(), accepted.len);
            }
        }
        accepted
    }

    /// Returns whether the peer answers RDMA Reads.
    pub(crate) fn answers_reads(&self) -> bool {
        self.reads > 0
    }

    /// The private data of the peer. InfiniBand pads it with zeroes.
    pub(crate) fn private_data(&self) -> &[u8] {
        self.data.get(..self.len).unwrap_or(&[])
    }
}

/// The state of a connection.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per connection, and an event can't wait for memory"
)]
pub(super) enum Phase {
    /// A step was begun, its event has not come.
    Waiting,
    /// The step was done.
    Done,
    /// The peer accepted. The data is taken by the thread that waits.
    Established(Option<Accepted>),
    /// The step failed, or the connection is lost.
    Failed(Error),
}

/// The object that the CM's handler works on.
#[pin_data]
pub(crate) struct Context<H: CmEvents> {
    /// The state of the connection.
    #[pin]
    phase: Mutex<Phase>,
    /// Signaled when `phase` has changed.
    #[pin]
    changed: CondVar,
    /// Set once the loss was reported, or once nobody wants to hear of it any more.
    reported: Atomic<bool>,
    /// The receiver of events.
    handler: Arc<H>,
}

impl<H: CmEvents> Context<H> {
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
    pub(crate) fn lost(&self) {
        if !self.reported.xchg(true, Full) {
            self.handler.connection_lost();
        }
    }

    /// From now on no loss is reported: the owner ends the connection itself.
    pub(crate) fn silence(&self) {
        self.reported.xchg(true, Full);
    }

    /// Returns the receiver of the events of this connection.
    pub(crate) fn handler(&self) -> &Arc<H> {
        &self.handler
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

    /// Ends a step, unless it has failed. Returns whether there was a connection.
    pub(super) fn set(&self, phase: Phase) -> bool {
        let mut now = self.phase.lock();
        let established = matches!(*now, Phase::Established(_));
        // A failure is final: a step that another thread is just beginning must not hide it.
        if !matches!(*now, Phase::Failed(_)) {
            *now = phase;
        }
        drop(now);
        self.changed.notify_all();
        established
    }

    /// The device goes away, which ends everything.
    pub(super) fn device_gone(&self) {
        self.fail(ENODEV);
        H::device_removed(&self.handler);
    }

    /// A failure ends the step that is waited for, or the connection.
    pub(super) fn fail(&self, error: Error) {
        if self.set(Phase::Failed(error)) {
            self.lost();
        }
    }
}

/// Lets another thread end a wait in a CM id.
pub(crate) struct AbortHandle<H: CmEvents>(pub(super) Arc<Context<H>>);

impl<H: CmEvents> AbortHandle<H> {
    /// Makes the current and every later step fail with `ESHUTDOWN`.
    pub(crate) fn abort(&self) {
        let mut phase = self.0.phase.lock();
        *phase = Phase::Failed(ESHUTDOWN);
        drop(phase);
        self.0.changed.notify_all();
    }
}
