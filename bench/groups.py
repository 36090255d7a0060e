"""Moves consumer groups, from the command's launch to its end.

`measure`: one cluster's groups to one moment, with `drkit failover --at` and with Kafka's own `kafka-consumer-groups`.
Kafka's tool only commits. drkit also inspects both clusters, plans, fences and seals, never skips unread records,
journals every step, and reads back every position and the record there.

`measure_site`: three links to one cluster, all sources dead in one of three ways, `drkit failover`. The mirror still
runs, like a mirror beside the target: the failover must wait until it has left.

Nine groups of ten are caught up; every tenth lags. A separate client checks all positions afterwards.
"""

from __future__ import annotations

import json
import random
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer

from bench.clusters import TARGET, Cluster, Clusters
from bench.mirrors import STORE, Job, Scene, drkit_toml, write_config
from bench.processes import CONFIG, MeasurementFailed, Running, drkit, run, wait_until
from bench.report import DRKIT, TIMES, Row
from bench.wire import Shape, load
from drkit.config.schema.config import ClusterConfig
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store

Offsets = dict[TopicPartition, tuple[int, str]]
_TOPIC = "bench-move"
_PREFIX = "bench-group-"
_STEP_MS = 1000
_FLUSH_SECONDS = 60.0
_HEAP = "-Xmx512M"  # Kafka's own script gives its tools 256 MiB
_CLASS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_SOURCES = ("primary", "orders", "payments")
_SYN_SECONDS = 0.5
_READY_SECONDS = 300.0
_FAILOVER = ("failover", "--to", TARGET, "--unplanned", "--yes", "--accept-unfenced", "--output", "json")


def _groups(cluster: Cluster) -> GroupAdmin:
    return GroupAdmin(cluster.alias, ClusterConfig(bootstrap_servers=cluster.address), timeout_seconds=60.0)


def _positions(prefix: str, groups: int, topic: str, partitions: int, records: int) -> dict[str, Offsets]:
    """Positions of groups on a topic with so many records per partition."""
    rng = random.Random(7)  # noqa: S311 - a scene, no secret
    found = {}
    for number in range(groups):
        offset = rng.randrange(records) if number % 10 == 0 else records
        found[f"{prefix}{number:04}"] = {TopicPartition(topic, each): (offset, "") for each in range(partitions)}
    return found


def commit(cluster: Cluster, positions: Mapping[str, Offsets]) -> None:
    """Commit each group's position."""
    with _groups(cluster) as admin:
        for failure in admin.commit_many(positions).values():
            raise failure


def _check(
    cluster: Cluster, tool: str, positions: Mapping[str, Offsets], moved: Callable[[int], int] = lambda offset: offset
) -> None:
    """Raise `MeasurementFailed` if a tool has left a group elsewhere; `moved`: the right place of a source's offset."""
    wanted = {(group, tp): moved(offset) for group, each in positions.items() for tp, (offset, _) in each.items()}
    with _groups(cluster) as admin:
        found = {(each.group, each.tp): each.offset for each in admin.committed(sorted(positions))}
    wrong = [key for key, offset in wanted.items() if found.get(key) != offset]
    if wrong:
        group, tp = wrong[0]
        raise MeasurementFailed(
            f"{tool} left {len(wrong)} of {len(wanted)} positions elsewhere, e.g. {group} on {tp} at "
            f"{found.get((group, tp))}, not {wanted[group, tp]}"
        )


def _delete_groups(cluster: Cluster) -> None:
    with _groups(cluster) as admin:
        admin.delete_groups([name for name in admin.list_groups() if name.startswith(_PREFIX)])


# --- to a moment --------------------------------------------------------------------------------------------------


def measure(scene: Scene) -> Iterator[Row]:
    """Run both tools on the pair of clusters alternately.

    Raises:
        MeasurementFailed: one of them failed, or left a group at another position.
    """
    groups, partitions, records = (1000, 50, 2000) if scene.full else (200, 20, 400)
    scene.say(f"move: {groups:,} groups {TIMES} {partitions} partitions")
    source, target, folder = scene.clusters.source, scene.clusters.target, scene.work
    positions = _positions(_PREFIX, groups, _TOPIC, partitions, records)
    back_to = records * 3 // 4

    def measured(tool: str, command: list[str], repeat: int, expected: Callable[[int], int]) -> Row:
        ended = run(command, folder)
        _check(target, tool, positions, expected)
        scene.say(f"  {tool}: {ended.seconds:.1f} s, {ended.cpu_seconds:.1f} CPU-s")
        row = {"tool": tool, "groups": groups, "partitions": partitions, "repeat": repeat}
        return row | {"seconds": ended.seconds, "cpu_seconds": ended.cpu_seconds}

    try:
        at = _fill_by_time(source, partitions, records, back_to)
        commit(source, positions)
        write_config(Job(folder, source, target, _TOPIC, "lz4"))
        run(drkit(folder, "mirror", "--until-caught-up"), folder)
        shutil.copy(folder / STORE, folder / "before.db")
        kafka = [
            *(str(scene.toolchain.java), _HEAP, "-cp", scene.toolchain.classpath("mirrormaker"), _CLASS),
            *("--bootstrap-server", target.address, "--reset-offsets", "--all-groups", "--all-topics"),
            *("--to-datetime", at.strftime("%Y-%m-%dT%H:%M:%S.000"), "--execute"),
        ]
        words = ("--to", target.alias, "--all-groups", "--execute", "--yes", "--accept-unfenced")
        failover = drkit(folder, "failover", *words, "--at", at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        for repeat in range(1, scene.repeats + 1):
            ends = {TopicPartition(_TOPIC, each): (records, "") for each in range(partitions)}
            commit(target, dict.fromkeys(positions, ends))  # Kafka's tool resets only groups that exist on its cluster
            yield measured("kafka-consumer-groups", kafka, repeat, lambda _: back_to)
            _delete_groups(target)
            yield measured(DRKIT, failover, repeat, lambda offset: min(offset, back_to))
            target.delete_topics(keep=(_TOPIC,))  # drkit's copy of its state: an older store moves nothing
            for rest in folder.glob(f"{STORE}*"):
                rest.unlink()
            shutil.copy(folder / "before.db", folder / STORE)
    finally:
        for cluster in (target, source):
            _delete_groups(cluster)
        scene.clusters.delete_topics()


def _fill_by_time(source: Cluster, partitions: int, records: int, back_to: int) -> datetime:
    """Fill a topic, one record per second on each partition; returns the time of record `back_to`, in whole seconds."""
    source.create_topic(_TOPIC, partitions, {"retention.ms": "-1"})
    first = int(time.time() * 1000) - 2 * _STEP_MS * records
    producer = Producer(
        {
            "bootstrap.servers": source.address,
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": records * partitions + 1,
        }
    )
    for number in range(records):
        for partition in range(partitions):
            value = b"%d-%d-%s" % (partition, number, b"x" * 80)
            producer.produce(_TOPIC, value, partition=partition, timestamp=first + _STEP_MS * number)
    if producer.flush(_FLUSH_SECONDS):
        raise MeasurementFailed("the source could not be filled")
    return datetime.fromtimestamp((first + _STEP_MS * back_to) // 1000, UTC)


# --- a site -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SiteCase:
    """A site's failover: `groups` of each link on so many partitions of its topic; `quick_groups` in a quick run."""

    name: str
    groups: int
    partitions: int
    records: int = 1000
    repeats: int = 3
    quick_groups: int = 20


SITES = (
    SiteCase("site-30", 1, 10, quick_groups=1),
    SiteCase("site", 333, 50),
    SiteCase("site-5000", 1666, 100, records=100, repeats=1),
)
SITE_WAYS = ("killed", "frozen", "silent")
"""How sources die: connections are refused; accepted, but never answered; not accepted (SYN is dropped)."""


def measure_site(scene: Scene, case: SiteCase) -> Iterator[Row]:
    """Sources that die in each way, alternately, on four brokers of their own.

    Raises:
        MeasurementFailed: mirror or failover failed, or a group has another position than it should.
    """
    groups, partitions, records = case.groups if scene.full else case.quick_groups, case.partitions, case.records
    scene.say(f"{case.name}: {len(_SOURCES)} links, {groups} groups {TIMES} {partitions} partitions each")
    with Clusters(scene.work, scene.say, sources=_SOURCES, heap_mib=512) as clusters:
        positions: dict[str, dict[str, Offsets]] = {}
        for source in clusters.sources:
            topic = f"{_PREFIX}{source.alias}"
            source.create_topic(topic, partitions, {"retention.ms": "-1"})
            load(source.address, topic, Shape(records * partitions, 100, "lz4", records // 10, partitions))
            positions[source.alias] = _positions(f"{topic}-", groups, topic, partitions, records)
            commit(source, positions[source.alias])
        for repeat in range(1, max(scene.repeats, case.repeats if scene.full else 1) + 1):
            for way in SITE_WAYS:
                with scene.folder() as inner:
                    row = _fail_over(inner, clusters, positions, partitions * records, way)
                named = {"case": case.name, "way": way, "repeat": repeat}
                row = named | {"groups": len(_SOURCES) * groups, "partitions": partitions} | row
                scene.say(f"  {way}: {row['seconds']:.1f} s, to verified positions {row['rto_seconds']:.1f}")
                yield row


@contextmanager
def _dead(clusters: Clusters, way: str) -> Iterator[None]:
    """All sources are dead in the block; afterwards they answer again, with their former data."""
    with ExitStack() as queued:
        try:
            if way == "killed":
                clusters.lab.kill(*_SOURCES)
            else:
                clusters.lab.pause(*_SOURCES)
            for source in clusters.sources if way == "silent" else ():
                host, _, port = source.address.rpartition(":")
                with suppress(TimeoutError):  # the queue of connections that nobody accepts is full
                    while True:
                        queued.enter_context(socket.create_connection((host, int(port)), timeout=_SYN_SECONDS))
            yield
        finally:
            queued.close()
            (clusters.lab.restart if way == "killed" else clusters.lab.resume)(*_SOURCES)


def _fail_over(
    scene: Scene, clusters: Clusters, positions: dict[str, dict[str, Offsets]], through: int, way: str
) -> Row:
    folder = scene.work
    links = [
        (
            f'source = "{each.alias}"\ntarget = "{TARGET}"\ntopics = [\'{_PREFIX}{each.alias}\']',
            f"groups = ['{_PREFIX}{each.alias}-.*']",
        )
        for each in clusters.sources
    ]
    (folder / CONFIG).write_text(drkit_toml([*clusters.sources, clusters.target], links), encoding="utf-8")
    mirror = Running.launch(drkit(folder, "mirror"), folder / "mirror.log", folder)
    with mirror.watched("site"):
        wait_until(lambda: _recorded(folder, positions, through), "catching up", _READY_SECONDS, running=mirror)
        with _dead(clusters, way):
            ended = run(drkit(folder, *_FAILOVER), folder)
    _check(clusters.target, DRKIT, {group: of for groups in positions.values() for group, of in groups.items()})
    _delete_groups(clusters.target)
    clusters.target.delete_topics()
    found = json.loads(ended.stdout)
    slowest: dict[str, float] = {}
    for stage in found["stages"]:
        slowest[stage["name"]] = max(slowest.get(stage["name"], 0.0), float(stage["seconds"]))
    times = {"seconds": ended.seconds, "rto_seconds": found["evidence"]["rto_seconds"]}
    return {"links": len(_SOURCES), **times, "stages": slowest, "cpu_seconds": ended.cpu_seconds}


def _recorded(folder: Path, positions: dict[str, dict[str, Offsets]], records: int) -> bool:
    """Whether the mirror has recorded all of so many records of each link, and all positions."""
    if not (folder / STORE).exists():
        return False
    store = open_store(f"sqlite:///{folder / STORE}")
    try:
        for alias, groups in positions.items():
            link = LinkId(alias, TARGET)
            through = sum(mark.source_through for mark in store.watermarks(link).values())
            captured = sum(each.group.startswith(_PREFIX) for each in store.group_positions(link))
            if through < records or captured < sum(map(len, groups.values())):
                return False
        return True
    finally:
        store.close()
