// SPDX-License-Identifier: GPL-2.0

//! Version One credits.

use crate::proto::credits::{
    Admission,
    Grant, //
};

/// Version One credits: each octet is something that happens.
pub fn credits(bytes: &[u8]) {
    let (requested, events) = match bytes.split_first() {
        Some((first, events)) => (u32::from(*first), events),
        None => return,
    };
    let mut grant = Grant::new(requested);
    let mut in_flight = 0_u32;
    let mut limit = 1_u32;

    for event in events {
        match event % 3 {
            0 => {
                let admission = grant.consume();
                // Never more than was granted, never fewer.
                assert_eq!(admission == Admission::Granted, in_flight < limit);
                in_flight += u32::from(admission == Admission::Granted);
            }
            1 => {
                grant.complete();
                in_flight = in_flight.saturating_sub(1);
            }
            _ => {
                let granted = u32::from(event / 3) * 7;
                limit = grant.update(granted);
                assert_eq!(limit, granted.clamp(1, requested.max(1)));
            }
        }
        assert_eq!(grant.limit(), limit);
        assert_eq!(grant.in_flight(), in_flight);
        // With nothing on its way a Call may always be sent: no deadlock.
        assert!(grant.admits(0));
    }
}
