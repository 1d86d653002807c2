// SPDX-License-Identifier: GPL-2.0

//! Host authentication, whatever a peer says.

use crate::{
    host::{
        addresses,
        Kept, //
    },
    proto::{
        auth::{
            psk::{
                Crypto,
                PreSharedKey, //
            },
            AuthVerdict,
            Authentication,
            Step,
            MAX_MESSAGES, //
        },
        session::Role,
        xdr::Reader, //
    }, //
};

/// Signs with something that no input of a fuzzer knows, and proves no one.
#[derive(Clone, Copy)]
struct Unknown;

impl Crypto for Unknown {
    fn mac(&self, data: &[u8]) -> Option<[u8; 32]> {
        let last = data.last().copied().unwrap_or(0);
        Some([0x5a ^ last; 32])
    }

    fn is_equal(&self, _: &[u8; 32], _: &[u8; 32]) -> bool {
        false
    }
}

/// What a peer says in its CONNPROP messages: each begins with two octets that say how long its
/// material is, if it has any, and whether it is the last one.
pub fn auth(bytes: &[u8]) {
    for (role, required) in [
        (Role::Client, false),
        (Role::Client, true),
        (Role::Server, false),
        (Role::Server, true),
    ] {
        let policy = PreSharedKey::new(role, required, Unknown, [7; 32], addresses(), 0);
        let mut exchange = Authentication::new(role, policy);
        let _ = exchange.open();
        let mut kept = Kept::default();
        let mut verdict = None;
        let mut messages = 0;
        let mut said_all = false;
        let mut reader = Reader::new(bytes);
        while let Ok([len, flags]) = reader.array::<2>() {
            let len = usize::from(*len).min(reader.rest().len());
            let material = reader.bytes(len).ok().filter(|_| flags & 2 == 0);
            let last = flags & 1 != 0;
            let step = exchange.receive(material, last, &mut kept);
            messages += 1;
            if verdict.is_some() {
                assert_eq!(step, Step::default(), "a verdict is the end");
                continue;
            }
            if let Some(say) = step.say {
                assert!(!said_all, "nothing is said behind the last token");
                said_all = say.last;
                assert!(!say.properties || say.last);
            }
            verdict = step.verdict;
            assert_ne!(
                verdict,
                Some(AuthVerdict::Accept),
                "nobody has proved himself"
            );
            assert!(!required || verdict != Some(AuthVerdict::Ignore));
            assert!(!last || verdict.is_some(), "the last message decides");
            assert!(messages <= MAX_MESSAGES || verdict.is_some());
            if let Some(AuthVerdict::Ignore) = verdict {
                assert!(said_all, "our properties are told");
            }
        }
    }
}
