// SPDX-License-Identifier: GPL-2.0

//! The two ends of a connection.

/// Tells which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The end that has made the connection.
    Client,
    /// The end that has accepted it.
    Server,
}
