// SPDX-License-Identifier: GPL-2.0

//! Where a peer is.

use super::id::Id;
use crate::sys;

/// Where a peer is, as far as the fabric vouches for it.
///
/// With InfiniBand and RoCE the addresses and the GID in a request are what the peer says. Within
/// an InfiniBand subnet packets go by LID alone, and that of a request is where it came from.
/// Elsewhere what accepts the connection is sent to the GID.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    /// The port of the subnet with this LID.
    Lid(u32),
    /// The port with this GID.
    Port([u8; 16]),
    /// The host with this IPv4 address.
    Ipv4(u32),
    /// The host with this IPv6 address.
    Ipv6([u8; 16]),
    /// Any other.
    Other,
}

impl Id {
    /// Returns where the peer of a connection is that was asked for.
    pub(super) fn host(&self) -> Host {
        // SAFETY: The id is valid. The CM has set the record, if the device has any, before it told
        // of the request, and does not change it.
        let path = unsafe { (*self.as_ptr()).route.path_rec.as_ref() };
        if let Some(path) = path {
            // SAFETY: The record is valid, as above, and is only read.
            let lid = unsafe { sys::sa_path_get_dlid(core::ptr::from_ref(path).cast_mut()) };
            // RoCE has none. Through a router it is the router's.
            if lid != 0 && path.hop_limit == 0 {
                return Host::Lid(u32::from_be(lid));
            }
            // SAFETY: The GID is valid for reads, as long as the array, and any octets make one.
            return Host::Port(unsafe { (&raw const path.dgid).cast::<[u8; 16]>().read() });
        }
        let remote = self.remote();
        match u32::from(remote.family()) {
            sys::AF_INET => Host::Ipv4(remote.ipv4()),
            sys::AF_INET6 => Host::Ipv6(remote.ipv6().to_ne_bytes()),
            _ => Host::Other,
        }
    }
}
