# SPDX-License-Identifier: GPL-2.0
"""What an RPC-over-RDMA server does with the messages of the hostile client.

Only those cases are done that need no more than NULL Calls, and that are right or wrong whatever the
server's limits are.
"""

import os
import time

import conform_table as table

#: Cases of Version One, with the sections that say what is right.
ONE = {
    "correct": "RFC 8166 3.5",
    "prefixes": "RFC 8166 4.5, 4.5.2",
    "words": "RFC 8166 4.2, 4.5.2",
    "versions": "RFC 8166 4.5, 4.5.1",
    "procedures": "RFC 8166 4.2.4, 4.5.2, 4.6",
    "runts": "RFC 8166 4.5",
    "noise": "RFC 8166 4.5.2",
    "credit_field": "RFC 8166 3.3.1, 4.2.3",
    "rpc_garbage": "RFC 8166 4.5.2, RFC 5531 9",
    "replies": "RFC 8166 4.2.4, 4.5",
    "positions": "RFC 8166 3.4.5",
    "special_calls": "RFC 8166 3.5.3, 4.5.2",
    "lengths": "RFC 8166 3.4.4, 8.1.1",
    "counts": "RFC 8166 3.4.4, 4.5.2",
    "foreign_reads": "RFC 8166 4.5.3",
    "invalidations": "RFC 8166 4.4.1",
}
#: Cases of Version Two, with the sections of the draft.
TWO = {
    "first_messages": "-07 4.3, 6.1, 7.1",
    "calls_first": "-07 4.2.1, 4.3",
    "property_sets": "-07 5.1, 6.3.4, 7.2.2",
    "smallest_peer": "-07 5.2.2, 7.3.5",
    "remaining": "-07 6.3.6, 7.1.4",
    "parts_in_disorder": "-07 6.3.6, 7.1.4",
    "interrupted": "-07 4.1, 6.3.6, 7.1.4",
    "credits_of_ours": "-07 4.2.1, 4.2.1.1",
    "grant_storm": "-07 4.2.1.1, 6.3.2",
    "many_segments": "-07 5.2.4, 7.3.3",
    "replies": "-07 6.3.9, 7",
    "mutations": "-07 6.1, 7.1, 7.2.1",
}
#: Cases of the draft of 2016 (B) and its extension (X), see `hostile_calls_2016`.
DRAFT_2016 = {
    "first_messages": "B 4.2, 5, X 4.1, 4.6",
    "headers": "B 4.2, RFC 8166 4.5",
    "properties": "X 2.1, 3, 4.1",
    "requests": "X 4.2, 4.3",
    "changes": "X 4.4",
    "floods": "RFC 8166 3.3.1",
    "endings": "B 5",
}


#: Exit statuses of the process that asks for one of the protocols with the number two.
SPOKEN, REFUSED, ENDED = 0, 3, 4
#: What says how a server answers that does not speak a protocol.
REFUSALS = {2: "-07 4.3.2, RFC 8166 4.5.1", 2016: "B 5, RFC 8166 4.5.1"}


def first_answer():
    """How the server answers a first message of Version Two; raises `Refused` if there is no server."""
    from common import Gone
    from hostile_two_caller import TwoCaller
    connection = TwoCaller()
    try:
        connection.open()
        return SPOKEN
    except Gone:
        return REFUSED if any(a.kind == "error 1" for a in connection.answers) else ENDED
    finally:
        connection.close()


def first_answer_2016():
    """The same for the draft of 2016."""
    from common import Gone
    from hostile_2016_caller import EarlierCaller
    from rpcrdma2016_words import TELL, TOLD, is_like
    connection = EarlierCaller()
    try:
        xid = connection.say(TELL)
        answer = connection.hear(xid)
        if answer is not None and is_like(answer.data, TOLD, xid):
            return SPOKEN
        return REFUSED if answer is not None and is_like(answer.data, "X 2 c 4 1 1 *", xid) else ENDED
    except Gone:
        return ENDED
    finally:
        connection.close()


def survey(version):
    """Does all cases of a version and prints what the server has done. Returns how many checks differ."""
    from common import Gone
    from hostile_attack import Attack, CASES
    from hostile_caller import Caller, Refused
    if version == 1:
        import hostile_calls  # noqa: F401 - enters its cases
        cases, wanted = CASES, ONE
    elif version == 2016:
        from hostile_calls_2016 import CASES as cases
        wanted = DRAFT_2016
    else:
        from hostile_calls_two import CASES as cases
        wanted = TWO

    class Survey(Attack):
        """Takes down what is seen instead of judging it."""

        def __init__(self):
            super().__init__(cases)
            self.checks = []

        def compare(self, label, outcome, allowed):
            self.checks.append((label, outcome, allowed))

        def problem(self, text):
            # Without the octets of messages.
            self.problems.append(text.partition(": [")[0])

        def exchange(self, connection, part):
            """Sends a few messages; if the connection is lost, each of them again, alone."""
            try:
                super().exchange(connection, part)
            except Gone:
                self.drop()
                for label, data, allowed in part:
                    try:
                        super().exchange(self.current(), [(label, data, allowed)])
                    except Gone:
                        self.compare(label, "lost", allowed)
                        self.drop()

        def well(self):
            """Whether another connection is answered."""
            began = time.monotonic()
            if self.friend is None:
                self.friend = Caller()
            if not self.friend.null(30):
                self.problem("another connection gets no answers")
                self.friend = None
            return time.monotonic() - began

    differ = 0
    for name, section in wanted.items():
        t = Survey()
        t.name = name
        try:
            cases[name](t)
            t.well()
        except (Gone, Refused) as x:
            t.problem(f"the case came to its end: {x}")
        for connection in (t.connection, t.friend):
            if connection:
                connection.close()
        print("\n".join([*table.heading(section, name, cases[name].__doc__),
                         *table.outcomes(t.checks, t.problems)]), flush=True)
        differ += sum(outcome not in allowed for _, outcome, allowed in t.checks) + len(t.problems)
    return differ


def in_child(work):
    """The exit status of a process that does some work, since settings are read when modules are."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 70
    try:
        status = work()
    except Exception as x:  # noqa: BLE001 - whatever it is, it is the answer
        print(f"{type(x).__name__}: {x}", flush=True)
    finally:
        os._exit(status)


def main(versions):
    """The table of a server, for the versions that are asked for; returns the exit status."""
    first = in_child(first_answer)
    if first not in (SPOKEN, REFUSED, ENDED):
        print("no connection")
        return 2
    if first != SPOKEN:
        # What the answer to Version Two has to be depends on it.
        os.environ["RPCRDMA_VERSION"] = "1"
    earlier = in_child(first_answer_2016)
    if earlier == SPOKEN:
        # Its messages are no wrong ones then.
        os.environ["SERVER_2016"] = "1"
    answers = {1: SPOKEN, 2: first, 2016: earlier}
    status = 0
    for version in versions:
        print(f"\nVersion {version}\n---------", flush=True)
        answer = answers[version]
        if answer != SPOKEN:
            print("The server does not speak it. " + (
                "It answers the first message with ERR_VERS, as required"
                if answer == REFUSED else "It does not answer the first message with ERR_VERS")
                + f"  [{REFUSALS[version]}]")
            continue
        status |= in_child(lambda: min(1, survey(version)))
    return status
