# SPDX-License-Identifier: GPL-2.0
"""A Queue Pair in user space that does what it is told, and what it posts and receives."""

import os
import resource
import select
import threading
import time

import pyverbs.enums as e
from pyverbs.cmid import CMEvent, CMEventChannel
from pyverbs.cq import CQ
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

from common import Gone, Pause

#: Octets of each Receive buffer, and how many of them there are.
INLINE, DEPTH = 4096, 64
#: Work requests that the Send Queue holds.
SENDS = 256
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
#: The same for memory that windows are made of.
WINDOWS = ACCESS | e.IBV_ACCESS_MW_BIND
#: pyverbs has no name for it in every release.
SEND_WITH_INV = getattr(e, "IBV_WR_SEND_WITH_INV", 9)
#: That a key was invalidated. rxe has the number that the kernel has for it.
WITH_INV = getattr(e, "IBV_WC_WITH_INV", 8) | 4
#: Objects of connections that have ended. pyverbs frees them in no safe order.
GRAVEYARD = []
# Each of them keeps a descriptor.
resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 14, 1 << 14))


class Events:
    """What the connection manager has to say."""

    def __init__(self):
        # pyverbs does not show the channel's descriptor, which alone can be polled. It is the lowest that was
        # free, unless another thread has taken that.
        lowest, before = os.dup(0), None
        os.close(lowest)
        if threading.active_count() > 1:
            before = self.descriptors()
        self.channel = CMEventChannel()
        self.poller = select.poll()
        self.poller.register(lowest if before is None else (self.descriptors() - before).pop(), select.POLLIN)

    @staticmethod
    def descriptors():
        """The descriptors of all channels of this process."""
        return {int(f) for f in os.listdir("/proc/self/fd")
                if os.path.exists(f"/proc/self/fd/{f}")
                and "rdma_cm" in os.readlink(f"/proc/self/fd/{f}")}

    def pending(self, milliseconds=0):
        """Whether there is an event."""
        return bool(self.poller.poll(milliseconds))

    def take(self):
        """The next event, which the caller acknowledges."""
        return CMEvent(self.channel)


class Message(bytes):
    """A message that has arrived, and the key that came with it as invalidated, if there is one."""

    invalidated = None


class Memory:
    """A protection domain, with Receive buffers and an arena for messages and chunks."""

    def __init__(self, context, arena, pd=None):
        self.pd = pd or PD(context)
        self.recv = MR(self.pd, INLINE * DEPTH, ACCESS)
        self.arena = MR(self.pd, arena, ACCESS)


class QueuePair:
    """A Queue Pair, from the moment its CM id has a device."""

    def __init__(self, cmid, memory):
        self.cmid, self.memory, self.arena = cmid, memory, memory.arena
        context = cmid.context
        self.cq = CQ(context, 1024)
        cap = QPCap(max_send_wr=SENDS, max_recv_wr=DEPTH, max_send_sge=2, max_recv_sge=1)
        # Not the CMID's own Queue Pair, which pyverbs lets nobody post to freely.
        self.qp = QP(memory.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq,
                                           cap=cap, sq_sig_all=1))
        self.arrived, self.done = [], set()
        #: Keys that came with messages as invalidated.
        self.invalidated = []
        #: What is not freed while the connection lives: what memory windows are of.
        self.kept = []
        #: Memory windows.
        self.windows = []
        self.wr_id = 1000
        #: How long a work request may take, in seconds.
        self.patience = 20

    def modify(self, state, **attributes):
        """Takes the Queue Pair to its next state; under iWARP the kernel does that."""
        if os.environ["FABRIC"] != "siw":
            attr, mask = self.cmid.init_qp_attr(state)
            for name, value in attributes.items():
                setattr(attr, name, value)
            self.qp.modify(attr, mask)

    def post_recv(self, i):
        """Posts a Receive, maybe again."""
        sge = SGE(self.memory.recv.buf + i * INLINE, INLINE, self.memory.recv.lkey)
        self.qp.post_recv(RecvWR(wr_id=i, num_sge=1, sg=[sge]))

    def poll(self):
        """Takes what has completed; returns how much it was."""
        n, wcs = self.cq.poll(64)
        for wc in wcs[:n] if n else ():
            if wc.status != e.IBV_WC_SUCCESS:
                raise Gone(f"completion status {wc.status}")
            if wc.wr_id < DEPTH:
                message = Message(self.memory.recv.read(wc.byte_len, wc.wr_id * INLINE))
                if wc.wc_flags & WITH_INV:
                    message.invalidated = wc.imm_data
                    self.invalidated.append(wc.imm_data)
                self.arrived.append(message)
                self.post_recv(wc.wr_id)
            else:
                self.done.add(wc.wr_id)
        return n

    def given_up(self):
        """Whether there is no point in waiting any longer."""
        return False

    def wait(self, wr_id):
        """Waits for the completion of a work request."""
        deadline = time.monotonic() + self.patience
        pause = Pause(0.004)
        while wr_id not in self.done:
            idle = not self.poll()
            # Others may complete without end.
            if time.monotonic() > deadline or idle and self.given_up():
                raise Gone("a work request does not complete")
            if idle:
                pause()
        self.done.discard(wr_id)

    def post(self, wr):
        """Posts a work request and waits for its completion."""
        self.qp.post_send(wr)
        self.wait(wr.wr_id)

    def new_id(self):
        """An id for a work request."""
        self.wr_id += 1
        return self.wr_id

    def send_request(self, data, invalidate=None, at=0):
        """The work request that sends one message, which is put into the arena."""
        data = bytes(data)
        if data:
            self.arena.write(data, len(data), at)
        sge = SGE(self.arena.buf + at, len(data), self.arena.lkey)
        opcode = e.IBV_WR_SEND if invalidate is None else SEND_WITH_INV
        wr = SendWR(wr_id=self.new_id(), opcode=opcode, num_sge=1, sg=[sge],
                    send_flags=e.IBV_SEND_SIGNALED)
        if invalidate is not None:
            # The same union as the immediate data.
            wr.imm_data = invalidate
        return wr

    def send_message(self, data, invalidate=None):
        """Sends one message, as it is."""
        self.post(self.send_request(data, invalidate))

    def rdma_write(self, handle, offset, data):
        """RDMA Write of some octets into the peer's memory."""
        if not data:
            return
        self.arena.write(data, len(data), 0)
        sge = SGE(self.arena.buf, len(data), self.arena.lkey)
        wr = SendWR(wr_id=self.new_id(), opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[sge],
                    send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(handle, offset)
        self.post(wr)

    def rdma_read(self, handle, offset, length):
        """RDMA Read of the peer's memory."""
        sge = SGE(self.arena.buf, length, self.arena.lkey)
        wr = SendWR(wr_id=self.new_id(), opcode=e.IBV_WR_RDMA_READ, num_sge=1, sg=[sge],
                    send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(handle, offset)
        self.post(wr)
        return self.arena.read(length, 0)

    def window(self, memory, at, length):
        """A segment whose handle the peer can invalidate, since it is a memory window. Needs rxe.

        `memory` is registered with `WINDOWS`.
        """
        window = MW(self.memory.pd, e.IBV_MW_TYPE_2)
        # The key has an octet that its owner counts.
        key = window.rkey & ~0xFF | window.rkey + 1 & 0xFF
        wr = SendWR(wr_id=self.new_id(), opcode=e.IBV_WR_BIND_MW, num_sge=0, sg=None,
                    send_flags=e.IBV_SEND_SIGNALED)
        info = MWBindInfo(memory, memory.buf + at, length, ACCESS & ~e.IBV_ACCESS_LOCAL_WRITE)
        wr.set_bind_wr(window, info)
        self.post(wr)
        self.windows.append(window)
        return (key, length, memory.buf + at)

    def has_invalidated(self, *keys):
        """Whether the peer has invalidated these keys since the last call, and no others."""
        seen, self.invalidated = self.invalidated, []
        # The field is that of immediate data, which some releases turn.
        turned = [int.from_bytes(key.to_bytes(4, "little"), "big") for key in keys]
        return sorted(seen) in (sorted(keys), sorted(turned))

    def in_order(self):
        """Whether the Queue Pair is, a moment later, still ready to send."""
        if os.environ["FABRIC"] != "siw":
            return True
        for _ in range(50):
            attr, _ = self.qp.query(e.IBV_QP_STATE)
            if attr.qp_state != e.IBV_QPS_RTS:
                return False
            time.sleep(0.02)
        return True

    def close(self):
        """Ends the connection; its objects stay."""
        GRAVEYARD.append(self)
        # rxe waits with a Queue Pair's end for windows that are bound to it.
        windows = [window.close for window in self.windows]
        for action in (self.cmid.disconnect, *windows, self.qp.close, self.cq.close):
            try:
                action()
            except Exception as x:  # noqa: BLE001 - the other side may be gone already
                print(f"close: {x}", flush=True)
