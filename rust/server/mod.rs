// SPDX-License-Identifier: GPL-2.0

//! The server transport as SUNRPC sees it: a listener, and the connections that it accepts.
//!
//! # Who owns what, and what ends it
//!
//! | object | owner | protected by | ends |
//! |---|---|---|---|
//! | [`Listening`], [`Connection`] | SUNRPC, see [`crate::sunrpc::svc`] | - | `free` |
//! | the listening CM id | the listener | mutex `listener` | `detach`, at the latest `free` |
//! | a connection that asks | the listener's queue | spinlock `requests` | accepted, or `free` |
//! | the endpoint | the connection | mutex `owner` | `free`: drained, then destroyed |
//! | a [`Callback`] | its `rpc_xprt`; known to the connection by mutex `callback` | its own | `destroy`, see [`callback`] |
//! | what debugfs shows | the connection, to which it refers back | mutex `directory` | `free`, first of all: waits for readers |
//! | a message, a Call that was read | the connection's queue | spinlock `inbox` | taken by a thread, or `free` |
//!
//! The flag `XPT_DATA` is set and cleared under the lock of the queue, so it is set whenever there is something
//! in it. A thread that waits for room in the Send Queue, a Send buffer or memory regions reads the counter `returns`
//! before it tries, and sleeps only as long as that stays the same; whatever comes back, and the loss of the
//! connection, counts it up first and then wakes.

mod callback;
mod connection;
mod listening;

pub(crate) use callback::Callback;
pub(crate) use connection::Connection;
pub(crate) use listening::Listening;

/// Registers the server's transport classes; dropping it takes them back.
pub(crate) type Registration = crate::sunrpc::svc::Registration<Listening, Callback>;
