// SPDX-License-Identifier: GPL-2.0

//! The earlier protocol with version number two: draft-cel-nfsv4-rpcrdma-version-two-01 of 2016,
//! with draft-dnoveck-nfsv4-rpcrdma-xcharext-03.
//!
//! It is Version One with a word for the direction in each header that has chunk lists
//! ([`message`](super::message)), an inline threshold of 4096 octets, and one message more, which
//! carries numbered operations and may be unknown to the peer ([`option`]). By such operations each
//! end tells its properties ([`props`]) and changes of them, at any time. Credits count Calls.
//!
//! References to sections with a B are to the former draft, those with an X to the latter.

#[cfg(any(test, rpcrdma_kunit))]
mod header;
pub(crate) mod option;
pub(crate) mod props;

/// The version number, which a later protocol has as well.
pub(crate) const VERSION: u32 = 2;

/// The procedures that Version One does not have (B 4.2).
pub(crate) mod procedure {
    /// An error code follows.
    pub(crate) const ERROR: u32 = crate::proto::message::ERROR;
    /// An operation follows, which the receiver need not know.
    pub(crate) const OPTIONAL: u32 = 5;
}

/// The error codes (B 4.2). That of a version is the same in all versions.
pub(crate) mod error_code {
    /// The header can't be read, or no Reply is possible.
    pub(crate) const BAD_HEADER: u32 = 2;
    /// The operation is not known.
    pub(crate) const INVAL_OPTION: u32 = 3;
}
