// SPDX-License-Identifier: GPL-2.0

//! Completions of an endpoint's Send Queue.

use crate::kext::prelude::*;
use crate::{
    endpoint::{
        gate::SendGate,
        reply::Pushed,
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
    type Writing = Pushed<H>;

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
        let (mut pull, place) = this.send.lock().queue.reads_done(done);
        // Before anybody looks at the memory.
        pull.unmap();
        if completion.ok() {
            this.retire(place);
        } else {
            this.trace_error(completion, trace::Work::Read);
            this.context.lost();
        }
        H::pulled(this.context.handler(), pull, completion.ok());
    }
}
