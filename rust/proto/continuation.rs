// SPDX-License-Identifier: GPL-2.0

//! Message continuation: an RPC message in several messages of the transport
//! (draft-ietf-nfsv4-rpcrdma-version-two-07, 6.6.2).
//!
//! All parts but the last have a MIDDLE header, which says how much is still to come. The last one
//! has an INLINE header with the chunk lists of the whole RPC message.
//!
//! Nothing may come between the parts in that direction (4.1, 6.3.6, 6.3.9). So a sender starts a
//! sequence only if its window covers all parts, and posts them together. A receiver knows the size
//! of the whole from the first part, before it has kept a single octet.

mod assembly;
mod split;

// A library: which of these are in use depends on the roles built around it.
#[allow(unused_imports)]
pub(crate) use self::{
    assembly::{
        Assembly,
        Placed, //
    },
    split::{
        Part,
        Split, //
    },
};
