// SPDX-License-Identifier: GPL-2.0

//! Any bytes at all can be decoded, and what they mean is consistent.

use proptest::{
    collection::vec,
    prelude::*, //
};

use super::generate::edgy;
use crate::{
    oracle,
    proto::{
        cm_private::CmPrivate,
        credits::Grant, //
    },
    workload::{
        self,
        Sample, //
    }, //
};

/// Bytes that look more like a message than random ones do: small words, and a plausible prefix.
fn plausible_message() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![8 => 0..3_u32, 1 => (0..8_u32).prop_map(|w| w * 4), 1 => edgy()];
    let version = prop_oneof![9 => Just(1_u32), 1 => edgy()];
    let procedure = prop_oneof![9 => 0..5_u32, 1 => edgy()];
    let head = (0..3_u32, version, edgy(), procedure);
    (head, vec(word, 0..64), 0..4_usize).prop_map(
        |((xid, version, credits, procedure), words, cut)| {
            let mut bytes: Vec<u8> = [xid, version, credits, procedure]
                .into_iter()
                .chain(words)
                .flat_map(u32::to_be_bytes)
                .collect();
            bytes.truncate(bytes.len() - cut);
            bytes
        },
    )
}

proptest! {
    #[test]
    fn random_bytes(bytes in vec(any::<u8>(), 0..256)) {
        oracle::v1_message(&bytes);
        oracle::chunk_lists(&bytes);
        oracle::cm_private(&bytes);
        oracle::xdr(&bytes);
        oracle::credits(&bytes);
        oracle::format(&bytes);
    }

    #[test]
    fn plausible_bytes(bytes in plausible_message()) {
        oracle::v1_message(&bytes);
        oracle::chunk_lists(&bytes);
        oracle::chunk_lists(&bytes[16.min(bytes.len())..]);
    }

    #[test]
    fn private_data_comes_back(
        send in 1..=256_u32,
        receive in 1..=256_u32,
        remote_invalidation in any::<bool>(),
        before in vec(0..0x80_u8, 0..64),
        after in vec(any::<u8>(), 0..64),
    ) {
        let told = CmPrivate {
            send_size: send * 1024,
            receive_size: receive * 1024,
            remote_invalidation,
        };
        let bytes = [&before[..], &told.encode(), &after].concat();
        prop_assert_eq!(CmPrivate::decode(&bytes), told);
        for len in 0..before.len() + 8 {
            prop_assert_eq!(CmPrivate::decode(&bytes[..len]), CmPrivate::DEFAULT);
        }
        oracle::cm_private(&bytes);
    }

    /// Never more is told than there is, and less than a unit is lost.
    #[test]
    fn sizes_are_told_rounded_down(send_size in edgy(), receive_size in edgy()) {
        let own = CmPrivate { send_size, receive_size, remote_invalidation: false };
        let told = CmPrivate::decode(&own.encode());
        for (told, own) in [(told.send_size, send_size), (told.receive_size, receive_size)] {
            let possible = own.clamp(1024, 262_144);
            prop_assert!(told <= possible && possible - told < 1024);
        }
    }

    #[test]
    fn grants_stay_in_range(requested in edgy(), granted in vec(edgy(), 0..32)) {
        let mut grant = Grant::new(requested);
        prop_assert_eq!(grant.limit(), 1);
        for granted in granted {
            let limit = grant.update(granted);
            prop_assert!(limit >= 1 && limit <= requested.max(1));
            prop_assert!(limit <= granted.max(1));
            prop_assert_eq!(limit, grant.limit());
        }
    }
}

/// What is measured is valid.
#[test]
fn samples_are_valid() {
    for sample in Sample::ALL {
        let message = sample.message();
        workload::decode(&message);
        oracle::v1_message(&message);
    }
    assert_eq!(workload::choose(1 << 20), 28 + 24 + 180);
}
