// SPDX-License-Identifier: GPL-2.0

//! The private data of connection messages.

use crate::proto::cm_private::{
    Agreed,
    CmPrivate,
    MAX_SIZE,
    MIN_SIZE, //
};

/// The private data of connection messages.
pub fn cm_private(bytes: &[u8]) {
    let peer = CmPrivate::decode(bytes);
    for size in [peer.send_size, peer.receive_size] {
        assert!((MIN_SIZE..=MAX_SIZE).contains(&size));
        assert_eq!(size % 1024, 0);
    }
    let encoded = peer.encode();
    assert_eq!(CmPrivate::decode(&encoded), peer);
    assert_eq!(encoded[5] & !1, 0);

    let conforming = bytes
        .windows(8)
        .any(|window| window.starts_with(&[0xf6, 0xab, 0x0e, 0x18, 1]));
    if !conforming {
        assert_eq!(peer, CmPrivate::DEFAULT);
    }

    // Both sides come to the same conclusion.
    let own = CmPrivate::decode(bytes.get(8..).unwrap_or_default());
    let (here, there) = (Agreed::new(&own, &peer), Agreed::new(&peer, &own));
    assert_eq!(here.send_inline, there.receive_inline);
    assert_eq!(here.receive_inline, there.send_inline);
    assert_eq!(here.remote_invalidation, there.remote_invalidation);
    assert!(here.send_inline <= own.send_size && here.send_inline <= peer.receive_size);
}
