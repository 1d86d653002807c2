// SPDX-License-Identifier: GPL-2.0

//! What must be true of the messages of the earlier protocol whatever bytes come in.

use crate::proto::{
    chunk::Limits,
    message::{
        decode,
        Body,
        Header,
        Version, //
    },
    props::Properties,
    session::{
        Config,
        Role,
        Session, //
    },
    v1,
    v2_2016::{
        option::{
            self,
            Operation, //
        },
        props::DEFAULT, //
    }, //
};

/// A message of the earlier protocol.
pub fn v2_2016_message(bytes: &[u8]) {
    if let Ok(header) = decode(Version::Earlier, bytes, &Limits::DEFAULT) {
        rpc(bytes, &header);
    }
    let is_optional = bytes.len() >= option::MIN_LEN && bytes[7] == 2 && bytes[15] == 5;
    if !is_optional {
        return;
    }
    if let Ok(message) = option::decode(bytes) {
        assert_eq!(message.xid.to_be_bytes(), bytes[..4]);
        // All that is known of an operation ends with the message.
        if !matches!(message.operation, Operation::Unknown { .. }) {
            assert!(option::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }
}

/// Without the word for the direction an RPC message is one of Version One, and says the same.
fn rpc(bytes: &[u8], header: &Header<'_>) {
    let mut one = bytes.to_vec();
    one[4..8].copy_from_slice(&v1::VERSION.to_be_bytes());
    if header.error().is_none() {
        one.drain(16..20);
    }
    let same = decode(Version::One, &one, &Limits::DEFAULT).expect("it is one of Version One");
    assert_eq!(same.direction(), header.direction());
    assert_eq!((same.xid, same.credits), (header.xid, header.credits));
    assert_eq!(same.payload, header.payload);
    match (same.body, header.body) {
        (Body::Error(one), Body::Error(two)) => assert_eq!(one, two),
        _ => {
            assert_eq!(same.header_len + 4, header.header_len);
            assert!(same.read_list().iter().eq(header.read_list().iter()));
            assert_eq!(same.write_list().len(), header.write_list().len());
        }
    }
}

/// First messages to a server, of every procedure and length: which protocol is spoken then.
///
/// # Panics
///
/// If it is not that of the table.
pub fn first_message() {
    for procedure in (0..16).chain([u32::MAX]) {
        for len in (0..=64).step_by(4) {
            let words = [7, 2, 9, procedure].into_iter().chain([0; 12]);
            let mut bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
            bytes.truncate(len);
            let mut session = Session::after(
                &Config {
                    role: Role::Server,
                    low: 1,
                    high: 2,
                    earlier: Some(DEFAULT),
                    own: Properties::DEFAULT,
                    authenticate: false,
                    receives: 8,
                    credits_in_one: 1,
                    limits: Limits::DEFAULT,
                    read_chunks: 4,
                    write_chunks: 4,
                    max_assembly: 4096,
                },
                0,
            );
            session.handle_received(&bytes);
            let expected = match (procedure, len) {
                (_, 0..16) => None,
                (0 | 1, _) | (5, 28..) => Some(Version::Earlier),
                (5, 16) | (6..=13, _) => Some(Version::Two),
                _ => None,
            };
            assert_eq!(
                session.dialect(),
                expected,
                "procedure {procedure}, {len} octets"
            );
            for other in [
                &[7, 2, 9, 5][..],
                &[7, 2, 9, 7, 0],
                &[7, 2, 9, 0, 0, 0, 0, 0],
            ] {
                let other: Vec<u8> = other.iter().copied().flat_map(u32::to_be_bytes).collect();
                session.handle_received(&other);
                if expected.is_some() && session.dialect().is_some() {
                    assert_eq!(session.dialect(), expected);
                }
            }
        }
    }
}
