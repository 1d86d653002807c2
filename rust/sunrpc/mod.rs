// SPDX-License-Identifier: GPL-2.0

//! SUNRPC, safely: what a client transport needs of it.

mod address;
mod backchannel;
mod buffer;
mod class;
mod deliver;
mod handle;
mod ops;
mod pinned;
mod send;
mod slot;
mod task;
#[cfg(CONFIG_KUNIT = "y")]
mod testing;
mod transport;
pub(crate) mod tunables;
mod xdr_buf;

#[allow(unused_imports)]
pub(crate) use self::{
    address::{
        AddressText,
        Net,
        SockAddr, //
    },
    backchannel::enqueue_bc_call,
    class::{
        CreateArgs,
        Registration, //
    },
    handle::{
        XprtHandle,
        XprtStats, //
    },
    pinned::Pinned,
    send::{
        BcReply,
        SendRqst, //
    },
    slot::Slot,
    task::RpcTask,
    transport::{
        SendError,
        Transport, //
    },
    tunables::Tunables,
    xdr_buf::{
        Fragments,
        Parts,
        XdrBuf, //
    }, //
};
