// SPDX-License-Identifier: GPL-2.0

//! The server transport as SUNRPC sees it: a listener, and the connections that it accepts.
//!
//! # Who owns what, and what ends it
//!
//! | object | owner | protected by | ends |
//! |---|---|---|---|
//! | [`Listening`], [`Connection`] | SUNRPC, see [`crate::sunrpc::svc`] | - | `free` |
//! | the listening CM id | the listener | mutex `place` | replaced, see below; or `detach` |
//! | a request to connect | the listener | spinlock `requests` | accepted, device gone, `detach` |
//! | the [`offenders`] | the listener, shared with its connections | its spinlock | dropped |
//! | the endpoint | the connection | mutex `owner` | `free`: drained, then destroyed |
//! | the [`Link`](crate::link::Link) | the connection, shared with its callback | `link` | `free` |
//! | a [`Callback`] | its `rpc_xprt` | its own | `destroy`, see [`callback`] |
//! | the directory in debugfs | the connection | mutex `directory` | `free`, first of all |
//! | a message, a Call that was read | the [`inbox`] | its spinlock | taken, or `free` |
//!
//! A listener makes another CM id when the device of its own goes, or when its address moves. The
//! connection knows its callback by the mutex `callback`. The files in debugfs refer back to the
//! connection, so that `free` waits for their readers.
//!
//! No thread waits for what only the peer can give. A Call is taken in when there is a Send buffer
//! for its Reply, and transfers do not have too many pages already; if not, `starved` is set, then
//! it is tried again, and whatever gives a buffer back or ends a transfer looks at `starved`
//! afterwards. What finds the Send Queue full waits in its lists. While Replies do `has_room` says
//! no, and the code that changes that has SUNRPC look again. A Call without chunks needs no pages,
//! so it goes before those that wait for them ([`inbox`]). A client that gives no pages back while
//! they are short is disconnected ([`withheld`]).
//!
//! Some devices need memory regions for RDMA Reads. A Call that finds too few of them goes back to
//! the inbox, where it is the next one, with `starved` set: a Call that has some gives them back
//! when its Reads end, and `starved` is looked at afterwards. If none has any the Call is refused,
//! since it wants more than there are.
//!
//! Only for memory regions for a Reply a thread does wait, see `Connection::await_regions`.
//!
//! What SUNRPC has put off ([`SvcXprt::has_deferred`](crate::sunrpc::svc::SvcXprt::has_deferred))
//! has its Send buffer, and others may wait for that: it may always go on.
//!
//! Replies to Calls of ours take Receives, but no credits; [`Due`](crate::proto::credits::Due)
//! bounds them by the Calls.

mod callback;
mod connection;
mod defaults;
mod inbox;
mod listening;
mod offenders;
mod requests;

pub(crate) use callback::Callback;
pub(crate) use connection::Connection;
pub(crate) use defaults::prepare;
pub(crate) use listening::Listening;

/// Registers the server's transport classes; dropping it takes them back.
pub(crate) type Registration =
    crate::sunrpc::svc::ServerClassRegistration<Listening, Callback<Connection>>;
