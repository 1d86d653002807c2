#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Host authentication in Version Two: by a key that both ends have, or not.
# mode: pair
# server: ours
# client: ours
# fabrics: rxe
# variants: 4.2
# soak-fabrics: rxe siw
# soak-variants: 4.2 3
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep debug
# timeout: 400 900
"""Mounts with every combination of keys and wishes; a client of its own that computes for itself,
and lies; a key that is changed under a mount, and before a further connection of it."""

import os
import stat
import sys
import time

sys.path.insert(0, "tests/lib")
import nfs_server  # noqa: E402
from case import main  # noqa: E402
from common import (Gone, Mount, check, child, log, pattern, read, remote, slow,  # noqa: E402
                    watchdog, status, wait_for, write, xprt_stats)
from rpcrdma2_header import GRANT, prefix  # noqa: E402

PARAMETERS = "/sys/module/rpcrdma/parameters"
DEBUGFS = "/sys/kernel/debug/rpcrdma"
KEY, OTHER = "00112233445566778899aabbccddeeff", "ff" * 20
#: What a mount says that is refused, and within how many seconds.
DENIED, NO_KEY, SOON = "access denied", "key not available", 20


def here(**values):
    """Sets parameters of this end."""
    for name, value in values.items():
        write(f"{PARAMETERS}/{name}", value + "\n")


def there(**values):
    """Sets parameters of the server."""
    for name, value in values.items():
        remote(f"echo '{value}' > {PARAMETERS}/{name}")


def show(path=None):
    """The state of the only connection, as this end sees it."""
    number, = [d for d in os.listdir(DEBUGFS) if d.isdigit()]
    return dict(line.split(": ", 1) for line in read(f"{DEBUGFS}/{number}/state").splitlines())


def server_state():
    """The state of the newest connection, as the server sees it."""
    text = remote(f"cd {DEBUGFS}/server && cat $(ls | sort -n | tail -1)/state")
    return dict(line.split(": ", 1) for line in text.splitlines())


def use(mount):
    """Does a little of everything."""
    data = pattern("host-auth", 300_000)
    with open(f"{mount.path}/file", "wb") as f:
        f.write(data)
    with open(f"{mount.path}/file", "rb") as f:
        check(f.read() == data, "other data read than written")
    os.unlink(f"{mount.path}/file")


def mounts(what, outcome, version="2"):
    """A mount is possible, and both ends think that of each other."""
    with Mount(os.environ["VARIANT"]) as mount:
        use(mount)
        state, other = show(), server_state()
        seen = tuple(s.get("host_authentication", "absent") for s in (state, other))
        check(seen == outcome, f"{what}: {seen}, not {outcome}")
        check(state["version"] == other["version"] == version, f"{what}: version {state['version']}")
        if version == "2":
            # However the properties are told, and in how many messages.
            levels = [s["reverse_direction"] for s in (state, other)]
            check(levels == ["general"] * 2, f"{what}: levels {levels}")
        check(xprt_stats(mount.path)["connect_count"] == 1, f"{what}: connected more than once")
    log(f"{what}: mounted, {outcome}")


def refused(what, text=DENIED):
    """A mount is not possible, and says so soon."""
    began = time.monotonic()
    mount = Mount(os.environ["VARIANT"], options="retry=0")
    out = mount.mount(ok=None, timeout=100)
    took = time.monotonic() - began
    mounted = os.path.ismount(mount.path)
    if mounted:
        mount.umount()
    check(not mounted, f"{what}: mounted")
    check(took < SOON * watchdog(), f"{what}: took {took:.1f} s")
    check(text in out.lower(), f"{what}: {out.strip()}")
    log(f"{what}: {out.strip()} ({took:.1f} s)")


def log_lines(text):
    """How many lines of the kernel's log have `text`."""
    return status("dmesg")[1].count(text)


def fails(act):
    """Whether the kernel refuses something."""
    try:
        act()
    except OSError:
        return True
    return False


def keys():
    """The key can't be read, and what is no key is none."""
    name = f"{PARAMETERS}/host_auth_key"
    check(stat.S_IMODE(os.stat(name).st_mode) == 0o200, "somebody else may read or write the key")
    check(fails(lambda: read(name)), "the key can be read")
    for value in ("1234", "zz" * 16, "0" * 33, "00" * 65, "0x" + "00" * 16, " " + KEY):
        check(fails(lambda v=value: write(name, v)), f"a key may be {value}")
    for name in ("client_host_auth", "server_host_auth"):
        check(read(f"{PARAMETERS}/{name}").strip() == "off", f"{name} is on by default")
        check(fails(lambda n=name: write(f"{PARAMETERS}/{n}", "maybe")), f"{name} may be anything")


def combinations():
    """What both ends want, and with which keys."""
    mounts("off at both ends", ("off", "off"))
    # With a key alone nothing changes.
    here(host_auth_key=KEY)
    there(host_auth_key=KEY)
    mounts("off, with keys", ("off", "off"))

    here(client_host_auth="require")
    there(server_host_auth="require")
    mounts("the same key", ("accepted", "accepted"))
    here(client_host_auth="offer")
    mounts("offered and required", ("accepted", "accepted"))
    there(server_host_auth="offer")
    mounts("offered by both", ("accepted", "accepted"))
    here(client_host_auth="require")
    mounts("required and offered", ("accepted", "accepted"))

    for name, client, server in (("both", "12000", "16000"), ("the client", "9000", "0"),
                                 ("the server", "0", "5000")):
        here(host_auth_padding=client)
        there(host_auth_padding=server)
        mounts(f"large material of {name}", ("accepted", "accepted"))
    here(host_auth_padding="0")
    there(host_auth_padding="0")

    before = log_lines("authentication failed")
    there(host_auth_key=OTHER)
    refused("another key")
    check(log_lines("authentication failed") > before, "nothing in the log")
    there(server_host_auth="require")
    here(client_host_auth="offer")
    refused("another key, offered")
    there(host_auth_key="")
    refused("a server that requires it and has no key")
    there(host_auth_key=KEY)
    here(client_host_auth="require", host_auth_key="")
    refused("a client without a key", NO_KEY)
    here(client_host_auth="off")
    refused("a client that does not want to")
    here(client_host_auth="offer")
    refused("a client that offers it without a key")

    here(host_auth_key=KEY, client_host_auth="require")
    there(server_host_auth="off")
    refused("a server that does not want to")
    here(client_host_auth="offer")
    mounts("a client that would", ("none", "off"))
    here(client_host_auth="off")
    there(server_host_auth="offer")
    mounts("a server that would", ("off", "none"))
    here(client_host_auth="require")
    mounts("afterwards", ("accepted", "accepted"))


def versions():
    """There is no host authentication in Version One."""
    there(server_host_auth="off", server_version="1")
    here(client_host_auth="require")
    refused("a server of Version One")
    here(client_host_auth="offer")
    mounts("a server of Version One, indifferently", ("none", "absent"), version="1")
    # Who requires it speaks Version Two, whatever else is set.
    here(client_host_auth="require", client_version="1")
    there(server_host_auth="require")
    mounts("Version Two in spite of it", ("accepted", "accepted"))
    here(client_host_auth="off")
    began = time.monotonic()
    refused("a client of Version One", "")
    log(f"a client of Version One: {time.monotonic() - began:.1f} s")
    here(client_version="2")
    there(server_version="2", server_host_auth="off")


def ended(pid):
    """Waits for the end of a child; its wait status."""
    found = []

    def has_ended():
        done, result = os.waitpid(pid, os.WNOHANG)
        if done:
            found.append(result)
        return bool(done)
    wait_for("the end", 120, has_ended)
    return found[0]


def change():
    """A key that is changed under a mount: it waits for the right one, and nothing fails."""
    here(client_host_auth="require")
    there(server_host_auth="require")
    with Mount(os.environ["VARIANT"]) as mount:
        use(mount)
        there(host_auth_key=OTHER)
        remote("rpc.nfsd 0")
        remote(f"rpc.nfsd -V 4.2 8; grep -q rdma {nfs_server.NFSD}/portlist || "
               f"echo 'rdma 20049' > {nfs_server.NFSD}/portlist")
        before = log_lines("authentication failed")
        user = child(lambda: use(mount), "use")
        wait_for("a refusal", 60, lambda: log_lines("authentication failed") > before)
        time.sleep(3)
        check(os.waitpid(user, os.WNOHANG) == (0, 0), "it has not waited")
        there(host_auth_key=KEY)
        check(ended(user) == 0, "it has failed")
        check(show()["host_authentication"] == "accepted", "not authenticated")


def further():
    """A further connection of a mount, refused when it is used for the first time: its RPCs wait, and nothing fails."""
    here(client_host_auth="require")
    there(server_host_auth="require")
    # The first one is made by the mount, the others when they get their first RPC.
    with Mount(os.environ["VARIANT"], options="nconnect=16") as mount:
        idle = [l for l in xprt_stats(mount.path, total=False) if not l["connect_count"]]
        check(idle, "all connections were made by the mount")
        there(host_auth_key=OTHER)
        before = log_lines("authentication failed")
        user = child(lambda: [use(mount) for _ in range(4)], "use")
        wait_for("a refusal", 60, lambda: log_lines("authentication failed") > before)
        time.sleep(3)
        check(os.waitpid(user, os.WNOHANG) == (0, 0), "it has not waited")
        there(host_auth_key=KEY)
        check(ended(user) == 0, "it has failed")


def prover(what, expected, act):
    """A client of our own: `act` speaks, and is compared with what is expected."""
    from host_auth_caller import Prover
    one = Prover(bytes.fromhex(KEY))
    try:
        try:
            got = act(one)
            got = one.outcome() if got is None else got
        except Gone:
            got = one.outcome()
        check(got in expected, f"{what}: {got}, not {' or '.join(expected)}")
        check(not one.connection.wrong, f"{what}: {one.connection.wrong}")
    finally:
        one.close()


def lies():
    """A client that computes for itself, with the truth first."""
    from host_auth_caller import CHALLENGE, HELLO, RESPONSE, Prover, token
    recorded = {}

    def honest(one, size=None, fill=0, **signed):
        nonce, proof = one.challenged(size, fill)
        check(proof == one.proof(b"server", nonce), "the server's proof is wrong")
        recorded.update(nonce=one.nonce, server=nonce, proof=one.proof(b"client", nonce),
                        challenge=proof)
        one.tell(token(RESPONSE, one.proof(b"client", nonce, **signed)), last=True)

    def wrong(one, proof):
        nonce, challenge = one.challenged()
        one.tell(token(RESPONSE, proof(one, nonce, challenge)), last=True)

    def replay(one):
        one.nonce = recorded["nonce"]
        nonce, _ = one.challenged()
        check(nonce != recorded["server"], "a nonce is used twice")
        one.tell(token(RESPONSE, recorded["proof"]), last=True)

    def reflect(one):
        # Another connection of ours is asked for what is to be proved here.
        nonce, _ = one.challenged()
        other = Prover(bytes(16))
        other.nonce = nonce
        _, proof = other.challenged()
        other.close()
        one.tell(token(RESPONSE, proof), last=True)

    def say(*pieces, last=False):
        def act(one):
            one.tell(pieces[0], last and len(pieces) == 1, politely=False)
            for n, piece in enumerate(pieces[1:]):
                one.tell(piece, last and n == len(pieces) - 2)
        return act

    def flood(one):
        one.tell(politely=False)
        for _ in range(200):
            one.tell()

    def behind(one):
        honest(one)
        check(one.outcome() == "accepted", "not accepted")
        one.tell(token(HELLO, one.nonce))
        return "accepted" if one.null() else "lost"

    yes, no = ("accepted",), ("refused",)
    for what, expected, act in (
            ("the truth", yes, honest),
            ("in small pieces", yes, lambda one: honest(one, 200, 5000)),
            ("in tiny pieces", yes, lambda one: honest(one, 9)),
            ("as long as may be", yes, lambda one: honest(one, 4000, (16 << 10) - 36)),
            ("another client's address", no, lambda one: honest(one, client="192.0.2.77")),
            ("another server's address", no, lambda one: honest(one, server="192.0.2.77")),
            ("no proof", no, lambda one: wrong(one, lambda *a: b"")),
            ("zeroes", no, lambda one: wrong(one, lambda *a: bytes(32))),
            ("the server's own proof", no, lambda one: wrong(one, lambda one, nonce, c: c)),
            ("a proof as a server", no,
             lambda one: wrong(one, lambda one, nonce, c: one.proof(b"server", nonce))),
            ("a replay", no, replay),
            ("a proof of another connection's", no, reflect),
            ("nothing", no, say(None, last=True)),
            ("another scheme", no, say(b"GSSAPI" * 100, last=True)),
            ("a Call", ("lost", "refused"), lambda one: "a Reply" if one.call_at_once() else None),
            ("half a token", no, say(b"RPRX\0\0\0\x24\0\0\0\x01", last=True)),
            ("half a header", no, say(b"RPRX\0\0")),
            ("more than it says", no, say(b"RPRX\0\0\0\x04" + bytes(8))),
            ("too much", no, say(b"RPRX\0\0\x40\x01")),
            ("far too much", no, say(b"RPRX\xff\xff\xff\xff" + bytes(100))),
            ("a refusal", ("lost", "refused"), say(b"RPRX\0\0\0\0")),
            ("a challenge", no, say(token(CHALLENGE, bytes(64)))),
            ("a response at once", no, say(token(RESPONSE, bytes(32)), last=True)),
            ("two at once", no, say(token(HELLO, bytes(32)) + token(HELLO, bytes(32)))),
            ("hello, and that is all", no, say(token(HELLO, bytes(32)), None, last=True)),
            ("hello twice", no, say(token(HELLO, bytes(32)), token(HELLO, bytes(32)))),
            ("without an end", no, flood),
            ("something behind the end", ("accepted", "lost"), behind)):
        prover(what, expected, act)
        log(f"  {what}: {' or '.join(expected)}")


def silence():
    """Clients that do not get to the point: the server gives each of them half a minute."""
    from host_auth_caller import Prover
    begun, lasted = time.monotonic(), {}
    ones = {name: Prover(bytes(16)) for name in ("nothing", "half a token", "a little", "a GRANT")}
    ones["half a token"].tell(b"RPRX\0\0\x40\0" + bytes(100), politely=False)
    ones["a little"].tell(politely=False)
    ones["a GRANT"].connection.post_message(prefix(0, 40, GRANT))
    while len(lasted) < len(ones) and time.monotonic() - begun < 60 * watchdog():
        for name, one in ones.items():
            if name in lasted:
                continue
            try:
                if name == "a little":
                    one.tell()
                if one.connection.lost(within=0.5):
                    lasted[name] = time.monotonic() - begun
            except Gone:
                lasted[name] = time.monotonic() - begun
    for one in ones.values():
        one.close()
    log("  " + ", ".join(f"{name}: {seconds:.1f} s" for name, seconds in lasted.items()))
    check(set(lasted) == set(ones), f"still there: {set(ones) - set(lasted)}")
    check(max(lasted.values()) < 45 * watchdog(), "too late")


def version_one():
    """A client of Version One: each of its Calls is answered with the versions that there are."""
    from hostile_caller import XIDS, Caller
    from rpc_message import null_call
    one = Caller()
    for _ in range(20):
        xid = next(XIDS)
        answer = one.call(null_call(xid), xid)
        check(answer is not None, "a Call without an answer")
        header = answer.header
        check((header.vers, header.error) == (1, (1, 2, 2)), f"answered by {answer.data.hex()}")
    one.close()


def hostile():
    """Many of those, and what the server has afterwards."""
    there(server_host_auth="require", host_auth_key=KEY)
    version_one()
    lies()
    silence()
    # Half a token each, and gone: nothing of it may be kept.
    from host_auth_caller import Prover
    for _ in range(10 if slow() else 60):
        one = Prover(bytes(16))
        one.tell(b"RPRX\0\0\x40\0" + bytes(3000), politely=False)
        one.close()
    here(client_host_auth="require", host_auth_key=KEY)
    mounts("after all that", ("accepted", "accepted"))


def client():
    """All of it."""
    keys()
    combinations()
    versions()
    change()
    further()
    if os.environ["FABRIC"] == "rxe":
        hostile()
    check(int(remote("dmesg | grep -c 'authentication failed'", ok=(0, 1))) > 0, "nothing in the server's log")
    check(KEY not in status("dmesg")[1] + remote("dmesg"), "the key is in a log")


main(client)
