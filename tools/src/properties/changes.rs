// SPDX-License-Identifier: GPL-2.0

//! The earlier protocol with version number two, seen from its octets: what one end does about the
//! messages of the other, written in words.

use crate::proto::{
    chunk::Limits,
    cm_private::CmPrivate,
    connection::{
        receives::Receives,
        Connection,
        InOne,
        Reception, //
    },
    message::Version,
    props::{
        Properties,
        ReverseLevel, //
    },
    session::{
        Action,
        Config,
        Outbound,
        Role, //
    },
    v2::Direction,
    v2_2016::props::Values, //
};

/// What an end can do.
const OWN: Values = Values {
    receive_size: 8192,
    invalidation: 1,
    reverse: 2,
};

/// The properties of a client that tells all, and those of a server.
const OFFER: [u32; 18] = [
    0, 2, 32, 5, 0, 1, 44, 3, 1, 4, 8192, 2, 4, 1, 3, 4, 2, 0, //
];
const PROPERTIES: [u32; 18] = [
    0, 2, 32, 5, 1, 1, 44, 3, 1, 4, 8192, 2, 4, 1, 3, 4, 2, 0, //
];

/// A connection that may speak the protocol.
fn connection(role: Role) -> Connection {
    let private = CmPrivate {
        remote_invalidation: true,
        ..CmPrivate::DEFAULT
    };
    let in_one = InOne {
        own: private,
        peer: private,
        calls: 8,
    };
    let config = Config {
        role,
        low: 1,
        high: 2,
        earlier: Some(OWN),
        own: Properties {
            send_size: 8192,
            receive_size: 8192,
            reverse: 3,
            ..Properties::DEFAULT
        },
        authenticate: false,
        receives: 8,
        credits_in_one: 8,
        limits: Limits::DEFAULT,
        read_chunks: 4,
        write_chunks: 4,
        max_assembly: 4096,
    };
    Connection::new(&config, Receives::fixed(17), in_one)
}

/// Does what there is to do: returns the messages that are sent, and whether the connection ends.
fn settle(connection: &mut Connection) -> (Vec<Vec<u32>>, bool) {
    let (mut sent, mut ends) = (vec![], false);
    while let Some(action) = connection.poll() {
        match action {
            Action::Send(control) => {
                connection.session.commit(&control);
                connection.session.handle_sent();
                let mut buf = [0; 512];
                let len = control.encode(&mut buf).expect("it fits");
                let words = buf[..len].chunks_exact(4);
                sent.push(
                    words
                        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
                        .collect(),
                );
            }
            Action::Close(_) => ends = true,
            Action::Connected(_) | Action::Agreed(_) | Action::Wake => {}
        }
    }
    (sent, ends)
}

/// Has a message of words received.
fn hear(connection: &mut Connection, words: &[u32]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let reception = Reception {
        used: None,
        expects_answers: true,
    };
    connection.received(&bytes, &reception);
}

/// A connection that speaks the protocol, both ends having told their properties.
fn speaking(role: Role) -> Connection {
    let mut connection = connection(role);
    settle(&mut connection);
    hear(
        &mut connection,
        match role {
            Role::Client => &PROPERTIES,
            Role::Server => &OFFER,
        },
    );
    settle(&mut connection);
    assert_eq!(connection.version(), Some(Version::Earlier));
    connection
}

/// Section B 5.2: the client goes on with a version of the range, on the same connection and with
/// one Call; where there is none, or what answers is no answer, the connection ends.
#[test]
fn a_client_that_is_refused_goes_on_over_the_same_connection() {
    for (low, high) in [(1, 1), (0, 1), (1, 2), (1, 7), (0, u32::MAX)] {
        let mut client = connection(Role::Client);
        let (offer, _) = settle(&mut client);
        assert_eq!(offer.len(), 1, "one message, which is not repeated");
        assert_eq!(offer[0][..6], [0, 2, 8, 5, 0, 1]);
        hear(&mut client, &[0, 2, 20, 4, 1, low, high]);
        assert_eq!(settle(&mut client), (vec![], false), "{low} to {high}");
        assert_eq!(client.version(), Some(Version::One), "{low} to {high}");
        // What was told of the other version does not hold, and its credits are none of this one.
        assert_eq!(client.terms().send_size, CmPrivate::DEFAULT.receive_size);
        assert_eq!(client.grant().limit(), 1);
        let call = Outbound {
            direction: Direction::Call,
            parts: 1,
            chunks: false,
        };
        assert!(client.begin(&call).is_ok(), "a Call is sent");
        client.commit(&call);
        hear(&mut client, &[7, 1, 5, 0, 0, 0, 0, 7, 1, 0, 0, 0, 0]);
        assert_eq!(settle(&mut client), (vec![], false));
    }
    for answer in [
        &[0, 2, 20, 4, 1, 2, 7][..],
        &[0, 2, 20, 4, 1, 3, 9],
        &[0, 2, 20, 4, 2],
        &[0, 2, 20, 4, 4],
    ] {
        let mut client = connection(Role::Client);
        settle(&mut client);
        hear(&mut client, answer);
        assert_eq!(settle(&mut client), (vec![], true), "{answer:?}");
        assert_ne!(client.version(), Some(Version::Earlier), "{answer:?}");
    }
}

/// Section X 4.3: an answer has the transaction ID of its request, also if several wait, have the
/// same one, or that of something else. They come in the order of the requests.
#[test]
fn each_answer_has_the_transaction_id_of_its_request() {
    for role in [Role::Client, Role::Server] {
        let mut end = speaking(role);
        let direction = u32::from(role == Role::Server);
        let xids = [0, u32::MAX, 1, 1];
        for xid in xids {
            hear(&mut end, &[xid, 2, 9, 5, 0, 2, 16, 1, 99, 4, 0]);
        }
        let (sent, ends) = settle(&mut end);
        assert!(!ends, "{role:?}");
        assert!(sent.iter().all(|message| message[2] != 0), "{role:?}");
        let answers: Vec<_> = sent.iter().map(|m| (m[0], m[1], &m[3..])).collect();
        let rejected = &[5, 1, 3, 16, 0, 1, 1, 0][..];
        assert_eq!(answers, xids.map(|xid| (xid, 2, rejected)), "{role:?}");
        // An operation that is not known and a message that can't be read have theirs, too.
        hear(&mut end, &[7, 2, 9, 5, direction, 99, 0]);
        hear(&mut end, &[8, 2, 9, 5, direction, 4, 4, 1]);
        let (sent, ends) = settle(&mut end);
        let errors: Vec<_> = sent.iter().map(|m| (m[0], &m[3..])).collect();
        assert_eq!(
            (&errors[..], ends),
            (&[(7, &[4, 3][..]), (8, &[4, 2])][..], false)
        );
    }
}

/// Section X 4.4: what a change tells holds for the message that is sent next, and what it does not
/// tell stays as it was.
#[test]
fn what_is_told_holds_for_the_next_message() {
    let mut server = speaking(Role::Server);
    let now = |server: &Connection| {
        let terms = server.terms();
        assert_eq!(terms.may_invalidate, server.may_invalidate());
        (
            terms.send_size,
            terms.may_invalidate,
            terms.has_chunks,
            server.session.reverse(),
        )
    };
    let (general, inline, none) = (
        ReverseLevel::General,
        ReverseLevel::Simple,
        ReverseLevel::None,
    );
    assert_eq!(now(&server), (8192, true, true, general));
    for (told, expected) in [
        (&[16, 1, 1, 4, 4096][..], (4096, true, true, general)),
        (&[16, 1, 2, 4, 0], (4096, false, true, general)),
        (&[16, 1, 3, 4, 1], (4096, false, false, inline)),
        (&[16, 1, 3, 4, 0], (4096, false, false, none)),
        (&[4, 0], (4096, false, false, none)),
        // No longer than this end sends, and no shorter than is told.
        (&[28, 2, 1, 4, 100_000, 2, 4, 1], (8192, true, false, none)),
        (&[28, 2, 3, 4, 2, 1, 4, 1000], (1000, true, true, general)),
        // The defaults.
        (&[20, 2, 1, 0, 2, 0], (4096, false, true, general)),
    ] {
        // The direction is not looked at.
        for direction in [0, 1] {
            let words = [&[5, 2, 9, 5, direction, 4], told].concat();
            hear(&mut server, &words);
            assert_eq!(now(&server), expected, "{words:?}");
            assert_eq!(settle(&mut server), (vec![], false), "{words:?}");
        }
    }
}

/// Section X 4.3: in an answer nothing is named that was not asked for, whatever else has changed
/// or could; each element is named once.
#[test]
fn answers_name_only_what_was_asked_for() {
    let values = [
        [None, Some(4096), Some(8192), Some(9000)],
        [None, Some(0), Some(1), None],
        [None, Some(0), Some(1), Some(2)],
    ];
    for (role, most) in [
        (Role::Client, 8192),
        (Role::Server, 8192),
        (Role::Client, 6000),
    ] {
        for choice in 0..64_usize {
            let mut end = speaking(role);
            end.session.exchange.set_idle(choice % 2 == 0);
            if most != 8192 {
                // It has less than it could have, which is not asked for.
                hear(&mut end, &[3, 2, 9, 5, 0, 2, 16, 1, 1, 4, most]);
                settle(&mut end);
            }
            let asked: Vec<(u32, u32)> = (0..3)
                .filter_map(|at| Some((at as u32 + 1, values[at][(choice >> (2 * at)) & 3]?)))
                .collect();
            let mut words = vec![9, 2, 9, 5, 0, 2, 4 + 12 * asked.len() as u32];
            words.push(asked.len() as u32);
            words.extend(asked.iter().flat_map(|(code, value)| [*code, 4, *value]));
            hear(&mut end, &words);
            let (sent, _) = settle(&mut end);
            let answer = &sent[0];
            assert_eq!((answer[0], &answer[3..6]), (9, &[5, 1, 3][..]));
            let mut rest = answer[7..].iter().copied();
            let mut subset = || {
                let count = rest.next().expect("a count");
                assert!(count <= 1, "no zero words");
                (0..count).fold(0, |_, _| rest.next().expect("a word"))
            };
            let (done, rejected) = (subset(), subset());
            let others = rest.next().expect("a count");
            let mut named = vec![];
            for _ in 0..others {
                let (code, _, value) = (rest.next(), rest.next(), rest.next());
                let at = asked.iter().position(|(asked, _)| Some(*asked) == code);
                let at = at.expect("it was asked for");
                assert_ne!(Some(asked[at].1), value, "another value");
                named.push(at);
            }
            assert_eq!(rest.next(), None, "nothing follows");
            for at in 0..32 {
                let times = ((done >> at) & 1) + ((rejected >> at) & 1);
                let times = times as usize + named.iter().filter(|n| **n == at).count();
                assert_eq!(
                    times,
                    usize::from(at < asked.len()),
                    "{words:?}, {answer:?}"
                );
            }
        }
    }
}
