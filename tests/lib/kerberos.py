# SPDX-License-Identifier: GPL-2.0
"""A Kerberos realm of two guests: a KDC and an NFS server in one, a client in the other.

Everything is of MIT Kerberos and nfs-utils, as they are: krb5kdc, rpc.svcgssd, rpc.idmapd
in the server guest, rpc.gssd in the client guest. Names come from /etc/hosts. The realm,
its keys and its database live as long as the guests.
"""

import os
import subprocess

import nfs_server
from common import check, log, remote, run, start_rpcbind, status, wait_for

REALM = "RPCRDMA.TEST"
DOMAIN = "rpcrdma.test"
SERVER, CLIENT = f"server.{DOMAIN}", f"client.{DOMAIN}"
#: Key types of the realm: RFC 8009 for the servers and users, RFC 3962 for what the client's
#: machine uses, so that both kinds of checksum are on the wire.
NEW, OLD = "aes256-cts-hmac-sha384-192", "aes256-cts-hmac-sha1-96"
#: A user with a key, and one without. The numbers are the same in both guests.
USERS = {"alice": 2001, "bob": 2002}
#: Of the server guest.
KDC = "/run/krb5kdc"
KEYTAB = "/etc/krb5.keytab"
#: Of the client's machine.
CLIENT_KEYTAB = "/run/client.keytab"
#: What rpc.gssd and rpc.svcgssd say, in their guests.
GSSD_LOG = "/run/gssd.log"
SVCGSSD_LOG = "/run/svcgssd.log"


def put(path, text):
    """Writes a file of this guest's own, and the directories above it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def realm(role):
    """What both guests have to know: names, realm, users."""
    ours, theirs = os.environ["OWN_ADDR"], os.environ["PEER_ADDR"]
    server, client = (ours, theirs) if role == "server" else (theirs, ours)
    put("/etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n"
        f"{server} {SERVER} server\n{client} {CLIENT} client\n")
    put("/etc/krb5.conf", f"""[libdefaults]
	default_realm = {REALM}
	dns_lookup_realm = false
	dns_lookup_kdc = false
	dns_canonicalize_hostname = false
	rdns = false
	permitted_enctypes = {NEW} {OLD}
[realms]
	{REALM} = {{
		kdc = {server}
	}}
[domain_realm]
	.{DOMAIN} = {REALM}
""")
    # The client's machine acts for root there.
    put("/etc/idmapd.conf", f"""[General]
Domain = {DOMAIN}
Local-Realms = {REALM}
[Mapping]
Nobody-User = nobody
Nobody-Group = nogroup
[Translation]
Method = static,nsswitch
[Static]
nfs/{CLIENT}@{REALM} = root
""")
    with open("/etc/passwd", "a", encoding="ascii") as f:
        for name, number in USERS.items():
            f.write(f"{name}:x:{number}:65534::/run:/bin/sh\n")


def daemon(name, *options, output=None):
    """Starts one that stays in the foreground, with what it says in a file."""
    with open(output or f"/run/{name}.log", "wb") as out:
        subprocess.Popen([name, *options], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                         start_new_session=True)


def make_kdc():
    """Makes the realm's database with its principals and keytabs, and starts the KDC."""
    os.makedirs(KDC, 0o700, exist_ok=True)
    put("/etc/krb5kdc/kdc.conf", f"""[kdcdefaults]
	kdc_ports = 88
	kdc_tcp_ports = 88
[realms]
	{REALM} = {{
		database_name = {KDC}/principal
		key_stash_file = {KDC}/stash
		acl_file = {KDC}/acl
		master_key_type = {OLD}
		supported_enctypes = {NEW}:normal {OLD}:normal
	}}
[logging]
	kdc = FILE:{KDC}/log
""")
    run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of this guest only")

    def principal(name, keytab, *types):
        enctypes = ",".join(f"{t}:normal" for t in types)
        run("kadmin.local", "-r", REALM, "addprinc", "-randkey", "-e", enctypes, name)
        run("kadmin.local", "-r", REALM, "ktadd", "-k", keytab, "-norandkey", name)

    principal(f"nfs/{SERVER}", KEYTAB, NEW, OLD)
    principal(f"nfs/{CLIENT}", f"{KDC}/client.keytab", OLD)
    principal("alice", f"{KDC}/alice.keytab", NEW)
    daemon("krb5kdc", "-n", "-r", REALM)
    wait_for("the KDC", 10, lambda: f":{88:04X} " in nfs_server.read("/proc/net/udp"))


def server(flavour, threads=8):
    """The server's part: the realm, and an export that has to be mounted with `flavour`."""
    realm("server")
    nfs_server.make_root()
    nfs_server.no_name_service()
    make_kdc()
    os.makedirs("/run/rpc_pipefs", exist_ok=True)
    run("mount", "-t", "rpc_pipefs", "rpc_pipefs", "/run/rpc_pipefs")
    start_rpcbind()
    daemon("rpc.svcgssd", "-f", "-vvv", output=SVCGSSD_LOG)
    daemon("rpc.idmapd", "-f", "-S", "-v")
    nfs_server.main("--sec", flavour, "--threads", str(threads))


def client():
    """The client's part: the same realm, its machine's key, and rpc.gssd."""
    realm("client")
    fetch(f"{KDC}/client.keytab", CLIENT_KEYTAB)
    fetch(f"{KDC}/alice.keytab", "/run/alice.keytab", USERS["alice"])
    daemon("rpc.gssd", "-f", "-vvv", "-k", CLIENT_KEYTAB, output=GSSD_LOG)
    wait_for("rpc.gssd", 10, lambda: os.path.exists("/run/rpc_pipefs/gssd/clntXX"))


def fetch(there, here, owner=0):
    """Copies a keytab of the server guest."""
    put(here, "")
    os.chmod(here, 0o600)
    os.chown(here, owner, 0)
    with open(here, "wb") as f:
        f.write(bytes.fromhex(remote(f"od -An -v -tx1 {there}")))


def kinit(user):
    """Gets a user's ticket where rpc.gssd looks for it."""
    code, out = as_user(user, "kinit", "-k", "-t", f"/run/{user}.keytab", user)
    check(code == 0, f"kinit {user}: {out}")


def as_user(user, *argv):
    """Runs a command as a user; returns its status and its output."""
    number = str(USERS[user])
    return status("setpriv", "--reuid", number, "--regid", "65534", "--clear-groups", *argv)


def explain():
    """Shows what the daemons of both guests said, for who has to find out what went wrong."""
    log("rpc.gssd: " + status("tail", "-n", "60", GSSD_LOG)[1])
    log("the server guest: " + remote(f"tail -n 40 {SVCGSSD_LOG} /run/*.log {KDC}/log", ok=None))
