// SPDX-License-Identifier: GPL-2.0

//! What happens next.

use super::*;

/// What the schedule says.
pub(super) struct Schedule<'a> {
    /// The rest of it.
    pub(super) bytes: &'a [u8],
}

impl Schedule<'_> {
    /// Returns the next byte, or nothing at the end.
    pub(super) fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    /// Returns the next byte, or zero at the end.
    pub(super) fn any(&mut self) -> u32 {
        self.next().unwrap_or(0).into()
    }
}

impl Pair {
    /// Does one thing.
    pub(super) fn step(&mut self, what: u8, schedule: &mut Schedule<'_>) {
        let at = usize::from(what >> 7);
        match what & 0x1f {
            0..=4 => self.call(at, schedule),
            5..=13 => drop(self.deliver(at)),
            14..=19 => drop(self.send(at, usize::from(what >> 5))),
            20..=26 => while self.act(at) {},
            27..=28 => drop(self.complete(at)),
            30 if self.troubled => self.check(at),
            29 | 30 if what & 0x40 != 0 && self.ends[at].is_growing() => {
                self.ends[at].change_supply(schedule);
            }
            29 | 30 if self.ends[at].patience.bounds.is_some() => {
                let _ = self.prepare(at, what & 0x20 != 0);
            }
            29 | 30 => {
                let receives = schedule.any() % 16;
                self.ends[at]
                    .connection
                    .session
                    .set_receives(receives.checked_sub(1));
            }
            _ if self.troubled => self.go_wrong(at, schedule),
            _ if what == 0xff => self.reconnect(),
            _ => drop(self.act(at)),
        }
    }
}
