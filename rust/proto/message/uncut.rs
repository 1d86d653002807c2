// SPDX-License-Identifier: GPL-2.0

//! Which part of a Call has to reach SUNRPC in one piece.

use crate::proto::prelude::*;

/// The size of the fixed part of an RPC Call: XID, direction, version of RPC, program, its
/// version, and procedure.
const FIXED_LEN: usize = 6 * UNIT;

/// The longest body of a credential or a verifier (RFC 5531, 8.2).
const MAX_AUTH_LEN: usize = 400;

/// The flavor RPCSEC_GSS (RFC 2203, 5).
const RPCSEC_GSS: u32 = 6;

/// `RPCSEC_GSS_DATA` (RFC 2203, 5): the Call has arguments, and no token to set up a context.
const GSS_DATA: u32 = 0;

/// `rpc_gss_svc_none` (RFC 2203, 5): the arguments are neither signed nor encrypted.
const GSS_NONE: u32 = 1;

/// Returns the first position at which an RPC Call, of which `message` is the beginning, may be
/// cut.
///
/// What lies before it is the RPC header: SUNRPC computes the checksum of an RPCSEC_GSS header as
/// if it had no gaps. [`None`] if the header is not all in `message` or not sound, and for
/// RPCSEC_GSS if what follows is a token, or signed, or encrypted. SUNRPC takes a token out of an
/// `xdr_buf` as if that had no tail, and unwraps in place; and a Requester must not reduce what
/// is signed or encrypted (RFC 8166, 8.2.2.3; 11.2.2.3 of Version Two).
pub(super) fn first_cut(message: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(message);
    reader.bytes(FIXED_LEN).ok()?;
    let flavor = reader.u32().ok()?;
    let body = reader.opaque(MAX_AUTH_LEN).ok()?;
    if flavor == RPCSEC_GSS && !is_plain(body)? {
        return None;
    }
    // The verifier.
    reader.u32().ok()?;
    reader.opaque(MAX_AUTH_LEN).ok()?;
    Some(reader.position())
}

/// Returns whether the Call with this RPCSEC_GSS credential has plain arguments; [`None`] if the
/// credential is too short.
fn is_plain(credential: &[u8]) -> Option<bool> {
    let mut reader = Reader::new(credential);
    let _version = reader.u32().ok()?;
    let procedure = reader.u32().ok()?;
    let _sequence = reader.u32().ok()?;
    let service = reader.u32().ok()?;
    Some(procedure == GSS_DATA && service == GSS_NONE)
}
