// SPDX-License-Identifier: GPL-2.0

//! What the in-tree `kernel` crate lacks.
//!
//! Small safe wrappers of generic kernel facilities, none of which knows anything about RDMA or
//! RPC.

pub(crate) mod completion;
pub(crate) mod debugfs;
pub(crate) mod delayed_work;
pub(crate) mod errno;
pub(crate) mod host_key;
pub(crate) mod log;
pub(crate) mod memalloc;
pub(crate) mod module_ref;
pub(crate) mod num;
pub(crate) mod page_fragment;
pub(crate) mod ratelimit;
pub(crate) mod time;

#[allow(unused_imports)]
pub(crate) use self::{
    completion::Completion,
    delayed_work::{
        DelayedWork,
        HasDelayedWork, //
    },
    page_fragment::PageFragment, //
};
