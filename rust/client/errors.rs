// SPDX-License-Identifier: GPL-2.0

//! Error codes that SUNRPC gets for a failed attempt to connect.

use super::transport::Client;
use crate::kext::prelude::*;

/// The time after which a network namespace other than the first has no network if it has no RDMA
/// device, in seconds. Devices that are reset are away for less.
const DEVICE_GRACE: u64 = 30;

/// Returns the error of an attempt that failed with `error`, or `ENETUNREACH` if it means the same.
///
/// By default a mount outside of the first network namespace takes `ENETUNREACH` for the end of its
/// network (`fatal_neterrors`), because a container may be gone while its mount still has pages to
/// write. A route that is gone says so, but an RDMA device that is gone leaves the route. Nobody
/// can bring the device back to a namespace that only such mounts keep alive, so a namespace
/// without a device for [`DEVICE_GRACE`] has no network. In the first namespace a mount waits for
/// its device.
pub(super) fn without_network(this: &Client, error: Error) -> Error {
    let absent = this.connecting.note_device(error != ENODEV);
    if error == ENODEV && absent >= DEVICE_GRACE && !this.xprt.net().is_first() {
        ENETUNREACH
    } else {
        error
    }
}

/// Returns whether an attempt has failed before anything left this host. Then no pause follows: it
/// would spare nobody, and while tasks wait for it, each attempt ends the RPC of one of them only.
/// SUNRPC ends an RPC with such an error, or has its task wait for three seconds.
pub(super) fn is_local(error: Error) -> bool {
    matches!(error, ENETUNREACH | ENETDOWN | ENODEV)
}

/// Returns the error that SUNRPC takes for "try again", not "fail the RPC", for all that may pass.
/// Documentation/develop/architecture/connect-errors.rst has the whole table.
///
/// Some errors may be a mistake that somebody is about to put right, or go with a route that comes
/// back. A mount that makes its first connection fails with them at once, and says why; `mounting`
/// says that it is so. Later they would be errors of an application, whose mount may be one that
/// waits: on another connection of the same mount, which is made when it is used for the first
/// time, as well as on one that is made anew. These wait for as long as they want to.
///
/// A task that fails without a connection fails with `EHOSTUNREACH`. With `ETIMEDOUT` SUNRPC would
/// have it try again until the RPC has timed out as a whole.
pub(super) fn for_sunrpc(error: Error, mounting: bool) -> Error {
    match error {
        EACCES | ENOKEY if !mounting => EPROTO,
        EOPNOTSUPP if !mounting => EHOSTUNREACH,
        // These mean something to it already.
        ECONNREFUSED | ECONNRESET | ECONNABORTED | ENETDOWN | ENETUNREACH | EHOSTUNREACH
        | ENOTCONN | EPIPE | EPROTO | EACCES | ENOKEY => error,
        // The device can't do it.
        EOPNOTSUPP => EIO,
        // Nobody answers; or the device that leads there is gone, or not yet there.
        ETIMEDOUT | ENODEV | EADDRNOTAVAIL => EHOSTUNREACH,
        _ => ENOTCONN,
    }
}

/// Returns what SUNRPC is told of an error of an attempt. A device of iWARP may say of a rejection
/// that the connection was reset; SUNRPC would try again what a server refuses.
pub(super) fn rejected(error: Error) -> Error {
    match error {
        ECONNRESET => ECONNREFUSED,
        error => error,
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_client_errors)]
mod tests {
    use super::*;

    /// A mount fails with what only an administrator can change. What runs later waits: each error
    /// is one that SUNRPC tries again after.
    #[test]
    fn only_a_mount_fails_at_once() {
        for (error, mounting, later) in [
            (EACCES, EACCES, EPROTO),
            (ENOKEY, ENOKEY, EPROTO),
            (EOPNOTSUPP, EIO, EHOSTUNREACH),
            (ENODEV, EHOSTUNREACH, EHOSTUNREACH),
            (ETIMEDOUT, EHOSTUNREACH, EHOSTUNREACH),
            (ENETUNREACH, ENETUNREACH, ENETUNREACH),
            (ECONNREFUSED, ECONNREFUSED, ECONNREFUSED),
            (ENOMEM, ENOTCONN, ENOTCONN),
        ] {
            assert_eq!(for_sunrpc(error, true), mounting);
            assert_eq!(for_sunrpc(error, false), later);
        }
    }
}
