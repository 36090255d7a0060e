"""The network namespace of a run: addresses of brokers, and a cluster that vanishes.

`PRIMARY` and `DR` lead to the clusters' brokers on the same port, as a name in DNS needs it. `MOVING` is an address
that moves from one cluster to the other, like a load balancer or a virtual IP: with a directory of the kind command.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import namespace

PORT = 9092
PRIMARY = f"127.0.1.1:{PORT}"
DR = f"127.0.1.2:{PORT}"
MOVING = f"127.0.1.10:{PORT}"
RESOLVER = "127.0.0.1"
_CHAIN = "MOVING"

MOVE_SCRIPT = """
import json, pathlib, subprocess, sys
place, to = pathlib.Path(sys.argv[1]), dict(zip(("primary", "dr"), sys.argv[2:4]))
if sys.argv[4] == "read":
    sys.stdout.write(place.read_text() if place.exists() else "")
    sys.exit(0)
entry = json.load(sys.stdin)
if place.exists() and json.loads(place.read_text())["epoch"] > entry["epoch"]:
    sys.exit(3)
rules = "*nat\\n-F {chain}\\n-A {chain} -p tcp -j DNAT --to-destination " + to[entry["active"]] + "\\nCOMMIT\\n"
subprocess.run(["iptables-restore", "--noflush"], input=rules, text=True, check=True)
place.write_text(json.dumps(entry))
""".replace("{chain}", _CHAIN)
"""A directory's command: `SCRIPT PLACE PRIMARY DR read|publish`."""


def lacking() -> str:
    """Why such a namespace is impossible here; "": it is possible."""
    probe = "iptables -t nat -A OUTPUT -p tcp -j DNAT --to-destination 127.0.0.1:1"
    return namespace.lacking(("mount", "ip", "iptables"), probe, "NAT")


def set_up(folder: Path) -> None:
    """Set up loopback, and the resolver of this namespace."""
    namespace.loopback_up()
    resolver = folder / "resolv.conf"
    resolver.write_text(f"nameserver {RESOLVER}\noptions timeout:1 attempts:1\n", encoding="ascii")
    subprocess.run(["mount", "--bind", str(resolver), "/etc/resolv.conf"], check=True)


@contextmanager
def addresses(primary: str, dr: str) -> Iterator[None]:
    """Route the three addresses to these brokers (`host:port`); `MOVING` to primary's."""
    rules = [
        "*nat",
        f":{_CHAIN} - [0:0]",
        f"-A {_CHAIN} -p tcp -j DNAT --to-destination {primary}",
        *(
            f"-A OUTPUT -p tcp -d {address.partition(':')[0]} --dport {PORT} -j {target}"
            for address, target in (
                (PRIMARY, f"DNAT --to-destination {primary}"),
                (DR, f"DNAT --to-destination {dr}"),
                (MOVING, _CHAIN),
            )
        ),
        "COMMIT\n",
    ]
    subprocess.run(["iptables-restore"], input="\n".join(rules), text=True, check=True)
    try:
        yield
    finally:
        subprocess.run(["iptables", "-t", "nat", "-F"], check=False)
        subprocess.run(["iptables", "-F"], check=False)


def vanish(address: str) -> None:
    """Silently drop every packet from and to a broker."""
    port = address.rpartition(":")[2]
    for side in ("--dport", "--sport"):
        subprocess.run(["iptables", "-A", "INPUT", "-p", "tcp", side, port, "-j", "DROP"], check=True)
