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
        send_queue::{
            ReadsDone,
            SendQueueOwner,
            Sent, //
        }, //
    }, //
};

impl<H: EndpointEvents> SendQueueOwner for Endpoint<H> {
    type Held = Counted<H>;
    type Reading = H::Pull;
    type Writing = H::Push;

    fn sent(this: ArcBorrow<'_, Self>, sent: Sent, completion: Completion<'_>) {
        trace::sent(this.number(), sent.name, completion.status());
        if !completion.ok() {
            this.trace_error(completion, trace::Work::Send);
            this.context.lost();
            return;
        }
        this.retire(sent.place);
    }

    fn part_done(this: ArcBorrow<'_, Self>, completion: Completion<'_>) {
        if !completion.ok() {
            this.trace_error(completion, trace::Work::Send);
            this.context.lost();
            return;
        }
        this.retire_with(|gate| {
            let SendGate { queue, free, .. } = gate;
            queue.retire_part(|buffer| free.put(buffer))
        });
    }

    fn read(this: ArcBorrow<'_, Self>, done: ReadsDone<Self>, completion: Completion<'_>) {
        let mut gate = this.send.lock();
        let (mut pull, place) = gate.queue.reads_done(done);
        let retired = if completion.ok() {
            gate.retire(place)
        } else {
            Ok(())
        };
        drop(gate);
        // Before anybody looks at the memory. `send_room` tells that its regions are back; else the
        // end of the transfers does, when the pull is dropped.
        pull.unmap();
        if completion.ok() {
            this.use_room(retired);
        } else {
            this.trace_error(completion, trace::Work::Read);
            this.context.lost();
        }
        H::pulled(this.context.handler(), pull, completion.ok());
    }
}
