"""One disaster, for clients of every kind at the same time, in a network namespace of its own.

`PRIMARY` and `DR` lead to the clusters' brokers on the same port, as a name in DNS needs it. `MOVING` is an address
that moves from one cluster to the other, like a load balancer or a virtual IP: with a directory of the kind command.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from bench.clients.client import RECOMMENDED, STOP_SECONDS, TOPIC, Client, Kind, client
from bench.clients.table import Disaster, Waited
from bench.clusters import SOURCE, TARGET, Cluster, Clusters
from bench.mirrors import drkit_toml
from bench.processes import CONFIG, Running, drkit, namespace_lacks, wait_until
from drkit.config import load_config
from drkit.directory import Directory, open_directories
from drkit.model.errors import DrkitError
from drkit.model.topology import LinkId
from tests.support.clusters.directory_servers import KEY, ZONE, NotInstalled, bind, consul, etcd
from tests.support.links.log_reader import read_topic

# --- the network ---------------------------------------------------------------------------------------------------

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


def network_lacks() -> str:
    """Why such a namespace is impossible here; "": it is possible."""
    probe = "iptables -t nat -A OUTPUT -p tcp -j DNAT --to-destination 127.0.0.1:1"
    return namespace_lacks(("mount", "ip", "iptables"), probe, "NAT")


def set_up_network(folder: Path) -> None:
    """Set up the resolver of this namespace."""
    resolver = folder / "resolv.conf"
    resolver.write_text(f"nameserver {RESOLVER}\noptions timeout:1 attempts:1\n", encoding="ascii")
    subprocess.run(["mount", "--bind", str(resolver), "/etc/resolv.conf"], check=True)


@contextmanager
def routed(primary: str, dr: str) -> Iterator[None]:
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


# --- a plan and its scene ------------------------------------------------------------------------------------------

PARTITIONS = 2
LINK = LinkId(SOURCE, TARGET)
DNS_NAME = f"kafka.{ZONE}"
BY_DNS, BY_ADDRESS, BY_RESTART = "dns", "address", "restart"
_FOUND_AT = {BY_DNS: f"{DNS_NAME}:{PORT}", BY_ADDRESS: MOVING, BY_RESTART: PRIMARY}
_TTL_SECONDS = 5
_DIRECTORIES = ("file", "dns", "etcd", "consul", "command")
_EVERY_DIRECTORY = "librdkafka"
"""The kind of client that is measured with each kind of directory; the others use a file."""
_START_SECONDS = 180.0
_LOOK_SECONDS = 0.1
_WATCH_SECONDS = 1.0
"""The interval at which a supervisor polls the directory."""
_FAILOVER_SECONDS = 120.0
_PROBE = "dr"
"""The prefix of values that are written only to dr, once the directory names it: who reads them reads dr."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan. `limit_seconds`: how long to wait for clients after the disaster."""

    way: str
    finds_by: str
    limit_seconds: float


@dataclass(frozen=True, slots=True)
class _Scene:
    folder: Path
    clusters: Clusters
    directories: dict[str, Directory]
    say: Callable[[str], None]


def play(plan: Plan, kinds: Sequence[Kind], folder: Path, say: Callable[[str], None]) -> Disaster:
    """Start everything, inject the disaster, fail over, and wait for the clients.

    Raises:
        DrkitError: clusters, mirror or failover failed.
    """
    say(f"{plan.way}, clients find dr by {plan.finds_by}")
    with ExitStack() as stack:
        clusters = stack.enter_context(Clusters(folder, say, heap_mib=512))
        stack.enter_context(routed(clusters.source.address, clusters.target.address))
        missing = _configure(stack, folder, clusters)
        there = [kind for kind in _DIRECTORIES if kind not in missing]
        opened = dict(zip(there, open_directories(load_config(folder / CONFIG), LINK), strict=True))
        scene = _Scene(folder, clusters, opened, say)
        clusters.source.create_topic(TOPIC, PARTITIONS)
        mirror = Running.launch(drkit(folder, "mirror"), folder / "mirror.log", folder)
        stack.callback(mirror.stop)
        clients, not_run = _clients(plan, kinds, folder, missing)
        for process in (process for each in clients for process in each.both):
            stack.callback(process.stop)
        clients, silent = _start_clients(scene, plan, clients)
        wait_until(
            lambda: _positions_captured(folder, clients), "the mirror to have every group's position", _START_SECONDS
        )
        return _fail_over(scene, plan, clients, [*not_run, *silent])


# --- the scene ----------------------------------------------------------------------------------


def _configure(stack: ExitStack, folder: Path, clusters: Clusters) -> dict[str, str]:
    """Start directory servers, write drkit.toml; returns the directories that this machine lacks, with the reason."""
    missing: dict[str, str] = {}
    blocks = [f'url = "file://{folder}/active.json"']
    for kind, server in (("dns", _bind), ("etcd", _etcd), ("consul", _consul)):
        place = folder / kind
        place.mkdir()
        try:
            blocks.append(server(stack, place))
        except NotInstalled as error:
            missing[kind] = error.what
    script = folder / "move.py"
    script.write_text(MOVE_SCRIPT, encoding="utf-8")
    command = [sys.executable, str(script), str(folder / "moved.json")]
    blocks.append(f"command = {json.dumps([*command, clusters.source.address, clusters.target.address])}")
    reached = (Cluster(SOURCE, PRIMARY), Cluster(TARGET, DR))
    link = (f'source = "{SOURCE}"\ntarget = "{TARGET}"\ntopics = ["{TOPIC}"]\noffsets = "preserve"',)
    config = folder / CONFIG
    config.write_text("\n[[directory]]\n".join([drkit_toml(reached, [link]), *blocks]) + "\n", encoding="utf-8")
    config.chmod(0o600)
    return missing


def _bind(stack: ExitStack, place: Path) -> str:
    records = f"kafka {_TTL_SECONDS} IN A {PRIMARY.partition(':')[0]}\n"
    server = stack.enter_context(bind(place, RESOLVER, 53, records))
    return (
        f'url = "dns://{RESOLVER}:53/{ZONE}/kafka"\nttl = {_TTL_SECONDS}\n'
        f'tsig_name = "{KEY}"\ntsig_secret = "{server.secret}"'
    )


def _etcd(stack: ExitStack, place: Path) -> str:
    return f'url = "etcd://127.0.0.1:{stack.enter_context(etcd(place))}/drkit/active"'


def _consul(stack: ExitStack, place: Path) -> str:
    return f'url = "consul://127.0.0.1:{stack.enter_context(consul(place))}/drkit/active"'


def _clients(
    plan: Plan, kinds: Sequence[Kind], folder: Path, missing: dict[str, str]
) -> tuple[list[Client], list[Waited]]:
    """The clients for this disaster, and those that can't be measured."""
    chosen: list[tuple[Kind, str, str]] = []
    for kind in kinds:
        if plan.finds_by != BY_RESTART:
            chosen += [(kind, settings, plan.finds_by) for settings in kind.variants]
        else:
            directories = _DIRECTORIES if kind.name == _EVERY_DIRECTORY else _DIRECTORIES[:1]
            chosen += [(kind, RECOMMENDED, directory) for directory in directories]
    restarted = plan.finds_by == BY_RESTART
    lacking = missing if restarted else {key: why for key, why in missing.items() if key == plan.finds_by}
    made = [
        client(kind, settings, by, number, folder, restarted=restarted)
        for number, (kind, settings, by) in enumerate(chosen)
        if by not in lacking
    ]
    return made, [
        Waited(kind.name, settings, by, restarted, not_run=lacking[by])
        for kind, settings, by in chosen
        if by in lacking
    ]


def _start_clients(scene: _Scene, plan: Plan, clients: Sequence[Client]) -> tuple[list[Client], list[Waited]]:
    """Start them on primary; returns those that read and write there, and those that don't."""
    for each in clients:
        for process in each.both:
            process.start(_FOUND_AT[plan.finds_by])
    deadline = time.monotonic() + _START_SECONDS
    waiting = list(clients)
    while waiting and time.monotonic() < deadline:
        waiting = [each for each in waiting if not _is_working(each)]
        time.sleep(_LOOK_SECONDS)
    for each in waiting:
        for process in each.both:
            process.stop()
    silent = [
        Waited(
            *(each.kind.name, each.settings, each.finds_by, each.restarted),
            not_run="it did not work with primary: " + " / ".join(process.last_lines() for process in each.both),
        )
        for each in waiting
    ]
    for waited in silent:
        scene.say(f"  {waited.kind}, {waited.settings}: {waited.not_run}")
    scene.say(f"  {len(clients) - len(silent)} clients read and write on primary")
    return [each for each in clients if each not in waiting], silent


def _is_working(each: Client) -> bool:
    for process in each.both:
        process.read_output()
    return all(process.events for process in each.both)


def _positions_captured(folder: Path, clients: Sequence[Client]) -> bool:
    command = drkit(folder, "status", "--output", "json")
    asked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if asked.returncode != 0:
        return False
    (link,) = json.loads(asked.stdout)["links"]
    groups = link["groups"]
    mirrored = [each["mirrored_through"] for each in link["partitions"]]
    if link["state"] != "mirroring" or len(mirrored) != PARTITIONS or None in mirrored:
        return False
    known = Counter(group["group"] for group in groups if group["captured_at"] is not None)
    return all(known[each.reader.spec.name] == PARTITIONS for each in clients)


# --- the disaster -------------------------------------------------------------------------------


def _fail_over(scene: _Scene, plan: Plan, clients: Sequence[Client], others: Sequence[Waited]) -> Disaster:
    folder, clusters = scene.folder, scene.clusters
    struck_at = time.time()
    if plan.way == "killed":
        clusters.lab.kill(SOURCE)
    else:
        vanish(clusters.source.address)
    command = drkit(folder, "failover", "--to", TARGET, "--unplanned", "--yes", "--accept-unfenced")
    failover = Running.launch([*command, "--output", "json"], folder / "failover.json", folder)
    published = folder / "active.json"
    wait_until(lambda: published.exists() or failover.ended, "the directory to name dr", _FAILOVER_SECONDS)
    published_at = time.time()
    with _probe_writer(clusters.target.address) as write:
        if failover.process.wait(_FAILOVER_SECONDS) not in {0, 6}:
            said = (folder / "failover.json").read_text(encoding="utf-8", errors="replace")
            raise DrkitError(f"the failover ended with {failover.process.returncode}", meaning=said[-2000:])
        failover_seconds = time.time() - struck_at
        scene.say(f"  dr named after {published_at - struck_at:.1f} s, failover done after {failover_seconds:.1f} s")
        _wait_for_clients(scene, plan, clients, struck_at, write)
    waited = [_client_result(clusters.target.address, each, struck_at) for each in clients]
    for one in waited:
        scene.say(
            f"  {one.kind}, {one.settings}, {one.finds_by}: read {_seconds_text(one.read_seconds)}, write"
            f" {_seconds_text(one.write_seconds)}, read again {one.read_again}, never read {one.never_read}"
        )
    return Disaster(
        *(plan.way, plan.finds_by, round(published_at - struck_at, 1), round(failover_seconds, 1), plan.limit_seconds),
        [*waited, *others],
    )


def _wait_for_clients(
    scene: _Scene, plan: Plan, clients: Sequence[Client], struck_at: float, write: Callable[[], None]
) -> None:
    """Wait until all read and write on dr, or the time is up; supervisors restart those that need it."""
    to_restart = [each for each in clients if each.restarted]
    watched = 0.0
    while time.time() - struck_at < plan.limit_seconds:
        write()
        if time.monotonic() - watched >= _WATCH_SECONDS:
            watched = time.monotonic()
            for each in to_restart:
                _supervise(scene, each)
        to_restart = [each for each in to_restart if not _restart_if_due(each)]
        for process in (process for each in clients for process in each.both):
            process.read_output()
        if all(None not in _first_times(each, struck_at) for each in clients):
            return
        time.sleep(_LOOK_SECONDS)


def _supervise(scene: _Scene, each: Client) -> None:
    """Act as supervisor: once the directory names dr, tell the processes to end."""
    if each.restart_on is not None:
        return
    entry = scene.directories[each.finds_by].read()
    if entry is not None and entry.active == TARGET:
        each.restart_on, each.kill_at = entry.bootstrap_servers, time.monotonic() + STOP_SECONDS
        for process in each.both:
            process.terminate()


def _restart_if_due(each: Client) -> bool:
    """Restart both once they have ended, or had their time; returns whether that is done."""
    if each.restart_on is None:
        return False
    if time.monotonic() < each.kill_at and not all(process.ended for process in each.both):
        return False
    for process in each.both:
        process.start(each.restart_on)
    return True


def _first_times(each: Client, struck_at: float) -> tuple[float | None, float | None]:
    """The times at which it first read a record written only to dr, and at which dr first accepted one of its own."""
    read = each.reader.first(lambda event: event.value.startswith(f"{_PROBE}."))
    write = each.writer.first(lambda event: event.at > struck_at + 1.0)
    return read, write


def _client_result(address: str, each: Client, struck_at: float) -> Waited:
    read, write = _first_times(each, struck_at)
    again = never = None
    if read is not None:
        again = sum(times - 1 for times in each.reader.values.values())
        never = _never_read(address, each)
    return Waited(
        *(each.kind.name, each.settings, each.finds_by, each.restarted),
        read_seconds=None if read is None else round(read - struck_at, 1),
        write_seconds=None if write is None else round(write - struck_at, 1),
        read_again=again,
        never_read=never,
    )


def _never_read(address: str, each: Client) -> int:
    """The records of dr that its group skipped: below the last one that it saw, on each partition."""
    never = 0
    for records in read_topic(address, TOPIC).values():
        unread = 0
        for record in records:
            unread += 1
            if (record.value or b"").decode() in each.reader.values:
                never, unread = never + unread - 1, 0
    return never


@contextmanager
def _probe_writer(address: str) -> Iterator[Callable[[], None]]:
    """A writer to dr: each call writes a record to each partition."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    written = 0

    def write() -> None:
        nonlocal written
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, f"{_PROBE}.{written}".encode(), partition=partition)
            written += 1
        producer.poll(0)

    yield write
    producer.flush(10)


def _seconds_text(seconds: float | None) -> str:
    return "not within the limit" if seconds is None else f"{seconds:.1f} s"
