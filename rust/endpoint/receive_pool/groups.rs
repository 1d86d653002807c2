// SPDX-License-Identifier: GPL-2.0

//! Groups of connections that share Receives.
//!
//! All messages for a Shared Receive Queue are handled where one completion vector interrupts, and
//! SUNRPC gives them to threads there; the locks of the queue are written for each of them. So the
//! connections of a device are divided into groups, each with Receives of its own: as many groups
//! as there are NUMA nodes, and one for each [`CPUS`] CPUs where nodes are larger. Their vectors
//! lie as far apart as those of the device allow: drivers give neighbours to the same node.
//!
//! A new connection joins the group that has the fewest.

use crate::rdma::completion::Vector;

/// The number of CPUs for which there is a group.
const CPUS: u32 = 8;

/// The fewest Receives of a group, if there is more than one: enough for some connections that use
/// all their credits.
const FEWEST: u32 = 1024;

/// The facts that decide the number of groups.
#[derive(Clone, Copy)]
pub(super) struct Machine {
    /// NUMA nodes.
    pub(super) nodes: u32,
    /// CPUs.
    pub(super) cpus: u32,
    /// Completion vectors of the device.
    pub(super) vectors: u32,
    /// Shared Receive Queues of the device. Others may use some of them.
    pub(super) queues: u32,
}

/// The groups of a device's connections.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    /// Their number: at least one.
    count: u32,
    /// The number of completion vectors that interrupt different CPUs.
    vectors: u32,
    /// The most Receives of each.
    limit: u32,
}

impl Groups {
    /// Divides `limit` Receives among groups.
    pub(super) fn new(machine: Machine, limit: u32) -> Self {
        let vectors = machine.vectors.min(machine.cpus).max(1);
        let count = machine
            .nodes
            .max(machine.cpus.div_ceil(CPUS))
            .min(vectors)
            .min(machine.queues)
            .min(limit / FEWEST)
            .max(1);
        Self {
            count,
            vectors,
            limit: limit / count,
        }
    }

    /// Returns the most Receives of each.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the completion vectors of a group. Those of one connection differ from those of
    /// another: the core keeps completion queues for all vectors, so that all should be used.
    pub(super) fn vector(&self, group: u32) -> Vector {
        if self.count == 1 {
            return Vector::Any;
        }
        let begin = |group| group * self.vectors / self.count;
        let (first, next) = (begin(group), begin(group + 1));
        Vector::Among {
            first,
            count: next - first,
        }
    }

    /// Returns the first group that is none of `known`.
    pub(super) fn missing(&self, known: impl Iterator<Item = u32> + Clone) -> Option<u32> {
        (0..self.count).find(|group| known.clone().all(|known| known != *group))
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_receive_pool_groups)]
mod tests {
    use super::*;

    /// More queues than anything else.
    const QUEUES: u32 = 64;

    /// Returns the number of groups and the Receives of each.
    fn groups(nodes: u32, cpus: u32, vectors: u32, limit: u32) -> (u32, u32) {
        with_queues(QUEUES, nodes, cpus, vectors, limit)
    }

    /// The same of a device with this many queues.
    fn with_queues(queues: u32, nodes: u32, cpus: u32, vectors: u32, limit: u32) -> (u32, u32) {
        let machine = Machine {
            nodes,
            cpus,
            vectors,
            queues,
        };
        let groups = Groups::new(machine, limit);
        (groups.count, groups.limit())
    }

    #[test]
    fn each_node_has_one_and_each_eight_cpus() {
        assert_eq!(groups(1, 1, 1, 8192), (1, 8192));
        assert_eq!(groups(1, 8, 8, 8192), (1, 8192));
        assert_eq!(groups(1, 9, 64, 8192), (2, 4096));
        assert_eq!(groups(2, 2, 4, 8192), (2, 4096));
        assert_eq!(groups(2, 64, 64, 32_768), (8, 4096));
    }

    #[test]
    fn no_more_than_vectors_or_receives() {
        assert_eq!(groups(4, 64, 1, 8192), (1, 8192));
        assert_eq!(groups(4, 64, 3, 8192), (3, 2730));
        assert_eq!(groups(4, 64, 64, 2100), (2, 1050));
        assert_eq!(groups(4, 64, 64, 33), (1, 33));
        assert_eq!(groups(0, 0, 0, 33), (1, 33));
    }

    /// Else there would be Receives for groups that can't be made.
    #[test]
    fn no_more_than_queues() {
        assert_eq!(with_queues(3, 4, 64, 64, 8192), (3, 2730));
        assert_eq!(with_queues(1, 4, 64, 64, 8192), (1, 8192));
    }

    #[test]
    fn their_vectors_lie_apart() {
        let machine = Machine {
            nodes: 2,
            cpus: 16,
            vectors: 64,
            queues: QUEUES,
        };
        let groups = Groups::new(machine, 8192);
        for (group, first) in [(0, 0), (1, 8)] {
            assert_eq!(groups.vector(group), Vector::Among { first, count: 8 });
        }
        let alone = Groups::new(machine, 33);
        assert_eq!(alone.vector(0), Vector::Any);
    }

    #[test]
    fn what_is_missing_comes_first() {
        let machine = Machine {
            nodes: 3,
            cpus: 3,
            vectors: 3,
            queues: QUEUES,
        };
        let groups = Groups::new(machine, 8192);
        assert_eq!(groups.missing([].into_iter()), Some(0));
        assert_eq!(groups.missing([2, 0].into_iter()), Some(1));
        assert_eq!(groups.missing([2, 0, 1, 1].into_iter()), None);
    }
}
