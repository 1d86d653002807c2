// SPDX-License-Identifier: GPL-2.0

//! Completions of an endpoint's Send Queue.

use crate::kext::prelude::*;
use crate::{
    endpoint::{
        gate::SendGate,
        transfer::Counted,
        Endpoint,
        EndpointEvents, //
    },
    observe::trace,
    rdma::{
        completion::Completion,
        send_queue::SendQueueOwner, //
    }, //
};

impl<H: EndpointEvents> SendQueueOwner for Endpoint<H> {
    type Held = Counted<H>;
    type Reading = H::Pull;
    type Writing = H::Push;

    fn sent(this: ArcBorrow<'_, Self>, place: u64, completion: Completion<'_>) {
        trace::sent(this.number(), place, completion.status());
        if !completion.ok() {
            this.trace_error(completion, trace::Work::Send);
            this.context.lost();
            return;
        }
        this.retire(place);
    }

    fn part_done(this: ArcBorrow<'_, Self>, completion: Completion<'_>) {
        if !completion.ok() {
            this.trace_error(completion, trace::Work::Send);
            this.context.lost();
            return;
        }
        let mut gate = this.send.lock();
        let SendGate { queue, free, .. } = &mut *gate;
        queue.retire_part(|buffer| free.put(buffer));
        let gone_on = gate.go_on();
        drop(gate);
        this.use_room(gone_on);
    }

    fn read(this: ArcBorrow<'_, Self>, completion: Completion<'_>) {
        if !completion.ok() {
            this.trace_error(completion, trace::Work::Read);
            // Whatever was read stays where it is until the end of the queue.
            this.context.lost();
            return;
        }
        let mut gate = this.send.lock();
        let SendGate { queue, free, .. } = &mut *gate;
        let pull = queue.retire_reads(|buffer| free.put(buffer));
        let gone_on = gate.go_on();
        drop(gate);
        let Some(mut pull) = pull else {
            return this.use_room(gone_on);
        };
        // Before anybody looks at the memory. `send_room` tells that its regions are back.
        pull.unmap();
        this.use_room(gone_on);
        H::pulled(this.context.handler(), pull);
    }
}
