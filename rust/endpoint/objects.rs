// SPDX-License-Identifier: GPL-2.0

//! The verbs objects of an endpoint.

use crate::kext::prelude::*;
use crate::{
    endpoint::shared_queue::{
        Member,
        Membership, //
    },
    rdma::{
        cm::{
            CmEvents,
            CmId, //
        },
        protection_domain::ProtectionDomain, //
    }, //
};

/// The objects that must be torn down in order.
pub(super) struct Objects<H: CmEvents, M: Member> {
    /// The place among the connections of the device, and the queue that it shares, which uses the
    /// device too.
    pub(super) membership: Option<Membership<M>>,
    /// The protection domain of regions, once there is a QP.
    pub(super) pd: Option<Arc<ProtectionDomain>>,
    /// Holds the device, so it goes last. The QP is part of it.
    pub(super) cm: CmId<H>,
}
