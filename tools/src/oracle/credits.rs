// SPDX-License-Identifier: GPL-2.0

//! Version One credits.

use crate::proto::credits::Grant;

/// Version One credits: each octet is a grant of the peer.
pub fn credits(bytes: &[u8]) {
    let (requested, events) = match bytes.split_first() {
        Some((first, events)) => (u32::from(*first), events),
        None => return,
    };
    let mut grant = Grant::new(requested);
    // With nothing on its way a Call may always be sent: no deadlock.
    assert_eq!(grant.limit(), 1);

    for event in events {
        let granted = u32::from(*event) * 7;
        let limit = grant.update(granted);
        assert_eq!(limit, granted.clamp(1, requested.max(1)));
        assert_eq!(grant.limit(), limit);
    }
}
