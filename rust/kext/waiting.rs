// SPDX-License-Identifier: GPL-2.0

//! Waiting for something that others give back: a flag, and when each side looks.
//!
//! A caller that finds nothing sets a flag and looks again, since the thing may have come back
//! before the flag was set. The code that gives it back does so first, and then wakes the waiters,
//! if the flag is set.
//!
//! # Why nobody waits for what is there
//!
//! Both reach the thing under one lock, `look` as well as the code that gives it back. If `look` is
//! first, the flag was set before that lock was released, so it is seen by the other, which takes
//! the lock later and reads the flag after that. If `look` is second it finds the thing. No other
//! barrier is needed. This file uses `core` only: under `tools/` loom tries all orders of it.

/// A flag that says that somebody waits, and how to wake them.
pub(crate) trait Waiting {
    /// Sets the flag.
    fn set(&self);

    /// Clears the flag. If it was set, has the waiters look again.
    fn wake(&self);
}

/// Has the caller wait, unless `look` says that there is no need any more: then all waiters look
/// again at once. Returns what `look` said.
///
/// `look` takes the lock under which the thing is given back, see above.
pub(crate) fn wait_unless(waiting: &impl Waiting, look: impl FnOnce() -> bool) -> bool {
    waiting.set();
    let found = look();
    if found {
        waiting.wake();
    }
    found
}
