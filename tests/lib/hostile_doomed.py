# SPDX-License-Identifier: GPL-2.0
"""A process that begins many connections at once, and dies as it is told to.

Arguments: how many connections, and how far they get before it kills itself: `request` (asked
for, no answer awaited), `answer` (not completed), `call` (Calls under way).
"""

import os
import signal
import sys
import time

sys.path.insert(0, "tests/lib")
import pyverbs.cm_enums as ce  # noqa: E402
import pyverbs.enums as e  # noqa: E402
from pyverbs.cmid import AddrInfo, CMID, ConnParam  # noqa: E402
from pyverbs.pyverbs_error import PyverbsRDMAError  # noqa: E402
from hostile_caller import ARENA, PRIVATE  # noqa: E402
from hostile_qp import GRAVEYARD, Events, Memory, QueuePair  # noqa: E402
from common import NFS_PORT, watchdog  # noqa: E402
from rpc_message import null_call  # noqa: E402


class Doomed:
    """One of the connections: which step it has taken."""

    def __init__(self, address):
        self.events = Events()
        self.cmid = CMID(creator=self.events.channel, port_space=ce.RDMA_PS_TCP)
        self.cmid.resolve_addr(address, 5000)
        self.pair, self.state = None, "address"

    def step(self, memory):
        """Handles the next event, if there is one."""
        if not self.events.pending():
            return
        event = self.events.take()
        kind = event.event_type
        event.ack_cm_event()
        if kind == ce.RDMA_CM_EVENT_ADDR_RESOLVED:
            self.cmid.resolve_route(5000)
        elif kind == ce.RDMA_CM_EVENT_ROUTE_RESOLVED:
            if not memory:
                memory.append(Memory(self.cmid.context, ARENA))
            self.pair = QueuePair(self.cmid, memory[0])
            self.pair.modify(e.IBV_QPS_INIT)
            parameters = ConnParam(resources=4, depth=4, retry=7, rnr_retry=7,
                                   qp_num=self.pair.qp.qp_num, data_len=len(PRIVATE))
            parameters.set_private_data(PRIVATE)
            try:
                self.cmid.connect(parameters)
                self.state = "request"
            except PyverbsRDMAError as x:
                # As for `Caller`: the port may be one that an earlier connection had just now.
                if "Errno: 98" not in str(x):
                    raise
                self.state = "again"
        elif kind == ce.RDMA_CM_EVENT_CONNECT_RESPONSE:
            self.state = "answer"
        elif kind == ce.RDMA_CM_EVENT_ESTABLISHED:
            self.state = "established"
        else:
            self.state = f"event {kind}"

    def call(self):
        """Completes the connection and sends a few Calls that nothing waits for."""
        try:
            if self.state == "answer":
                for state in (e.IBV_QPS_INIT, e.IBV_QPS_RTR, e.IBV_QPS_RTS):
                    self.pair.modify(state)
                self.cmid.establish()
            if self.state in ("answer", "established"):
                for i in range(3):
                    self.pair.qp.post_send(self.pair.send_request(null_call(i)))
        except PyverbsRDMAError:
            # SUNRPC closes the oldest of many connections that have shown nothing yet.
            self.state = "closed"


def main(count, how):
    """Makes the connections and dies."""
    address = AddrInfo(dst=os.environ["PEER_ADDR"], dst_service=str(NFS_PORT),
                       port_space=ce.RDMA_PS_TCP)
    all_of_them, memory = [Doomed(address) for _ in range(count)], []
    deadline = time.monotonic() + 10 * watchdog()
    wanted = {"address"} if how == "request" else {"address", "request"}
    while any(d.state in wanted for d in all_of_them) and time.monotonic() < deadline:
        for i, one in enumerate(all_of_them):
            one.step(memory)
            if one.state == "again":
                GRAVEYARD.append(one)
                all_of_them[i] = Doomed(address)
        time.sleep(0.001)
    if how == "call":
        for one in all_of_them:
            one.call()
    states = [d.state for d in all_of_them]
    print({s: states.count(s) for s in set(states)}, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


main(int(sys.argv[1]), sys.argv[2])
