// SPDX-License-Identifier: GPL-2.0

//! Property tests.

mod auth;
mod bytes;
mod changes;
mod corpus;
mod earlier;
mod format;
mod generate;
mod held;
mod literal;
mod messages;
mod pairs;
mod rpc;
mod two;
mod vectors;
mod vectors_2016;
mod waiting;
mod windows;
