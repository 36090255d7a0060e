"""Positions of many committing groups, captured by `drkit mirror`: how late, and what it asks the coordinators.

A process of its own commits for 1,000 groups in turn, evenly over the interval, each time 8 partitions. The store is
read from outside, again and again: a commit counts from the moment its request is sent until its position can be read
there. What the mirror asks the broker is counted by the broker: its request log is switched on for some seconds.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from kafka.protocol.admin import IncrementalAlterConfigsRequest

from bench.clusters import Cluster, Clusters, spawn
from bench.peers.base import Job
from bench.peers.drkit import STORE, Drkit
from bench.stats import percentile
from bench.watch import MirrorFailed
from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.admin_connection import AdminConnection, check
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.lab.toolchain import ensure
from drkit.model.errors import DrkitError
from drkit.model.topology import TopicPartition

_TOPIC = "bench-groups"
_PARTITIONS = 8
_TICKS = 20  # a second
_BROKER_LOGGER = 8
_REQUEST_LOG = "kafka.request.logger"
_LOGGED = re.compile(r'^\[([^\]]+)\] DEBUG .*?"requestApiKeyName":"(\w+)"', re.MULTILINE)
_SETTINGS = {"offsets.topic.num.partitions": "50"}  # Kafka's default, which the bench lowers
_READY_SECONDS = 60.0
_COUNTED_SECONDS = 3.0  # a broker of the lab keeps 30 MB of its log


@dataclass(frozen=True, slots=True)
class Row:
    """One interval of commits. Delays in seconds; `late`: commits that took longer than a second; requests a second
    by name, of all clients of the broker."""

    groups: int
    interval: float
    commits: int
    p50: float
    p99: float
    longest: float
    late: int
    requests: dict[str, float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print (and JSON to `--out`)."""
    options = _options(arguments)
    if options.commit:
        _commit(options.commit, options.groups, options.interval)
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="drkit-groups-") as name:
            folder = Path(name)
            with Clusters(folder, ensure("kafka"), lambda line: print(line, file=sys.stderr), _SETTINGS) as clusters:
                rows = [_measure(folder, clusters, options.groups, each, options.seconds) for each in options.intervals]
    except (DrkitError, MirrorFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for row in rows:
        print(
            f"{row.groups:,} groups, a commit each every {row.interval:g} s: {row.commits:,} commits, "
            f"p50 {row.p50:.2f} s, p99 {row.p99:.2f} s, longest {row.longest:.2f} s, {row.late} above 1 s"
        )
        print("  requests/s: " + ", ".join(f"{api} {count:.1f}" for api, count in row.requests.items()))
    if options.out:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(folder: Path, clusters: Clusters, groups: int, interval: float, seconds: float) -> Row:
    source = clusters.source
    topic = f"{_TOPIC}-{interval:g}".replace(".", "-")
    source.create_topic(topic, _PARTITIONS)
    work = folder / topic
    work.mkdir()
    running = Drkit().launch(Job(work, source, clusters.target, re.escape(topic), "none"))
    command = [sys.executable, "-m", "bench.groups", "--commit", source.address, topic, "--groups", str(groups)]
    committer = spawn([*command, "--interval", str(interval)], work / "commits", cwd=Path(__file__).parents[1])
    try:
        delays, unseen = _watch(work, committer, groups, interval, seconds)
        requests = _count(source, folder / "primary-1" / "log")
    finally:
        for child in (committer, running.process):
            child.terminate()
            child.wait()
    if unseen:
        raise MirrorFailed(f"{unseen} commits were not captured; {running.last_words()}")
    delays.sort()
    late = sum(each > 1.0 for each in delays)
    p50, p99 = percentile(delays, 0.5), percentile(delays, 0.99)
    return Row(groups, interval, len(delays), p50, p99, delays[-1], late, requests)


# -- committing ------------------------------------------------------------------------------------


def _commit(where: Sequence[str], groups: int, interval: float) -> None:
    """Commit for ever, in a process of its own; a line a tick: the offset, the groups, when it was sent."""
    address, topic = where
    names = [f"{topic}-{number:05}" for number in range(groups)]
    ticks = max(1, round(_TICKS * interval))
    size = -(-groups // ticks)
    begun, number = time.monotonic(), 0
    with GroupAdmin("primary", ClusterConfig(bootstrap_servers=address), timeout_seconds=30.0) as admin:
        while True:
            first, offset = (number % ticks) * size, number // ticks + 1
            stands = {TopicPartition(topic, partition): (offset, "") for partition in range(_PARTITIONS)}
            sent = time.monotonic()
            for failure in admin.commit_many(dict.fromkeys(names[first : first + size], stands)).values():
                raise failure
            print(json.dumps([offset, names[first : first + size], sent]), flush=True)
            number += 1
            time.sleep(max(0.0, begun + number * interval / ticks - time.monotonic()))


# -- watching --------------------------------------------------------------------------------------


def _watch(
    work: Path, committer: subprocess.Popen[bytes], groups: int, interval: float, seconds: float
) -> tuple[list[float], int]:
    """The delay of every commit that was sent in the span; how many weren't there ten seconds after it."""
    _until_all_are_there(work, committer, groups)
    waiting: dict[str, deque[tuple[int, float]]] = {}
    delays: list[float] = []
    begun, rest = time.monotonic(), ""
    with (work / "commits").open(encoding="utf-8") as commits:
        while time.monotonic() < begun + seconds + 10:
            *whole, rest = (rest + commits.read()).split("\n")
            for line in whole:
                offset, names, sent = json.loads(line)
                if begun <= sent < begun + seconds:
                    for name in names:
                        waiting.setdefault(name, deque()).append((offset, sent))
            stands = _stands(work)
            at = time.monotonic()
            for name, due in waiting.items():
                while due and stands.get(name, 0) >= due[0][0]:
                    delays.append(at - due.popleft()[1])
            if at > begun + seconds + interval and not any(waiting.values()):
                break
            time.sleep(0.02)
    return delays, sum(map(len, waiting.values()))


def _until_all_are_there(work: Path, committer: subprocess.Popen[bytes], groups: int) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while len(_stands(work)) < groups:
        if time.monotonic() > deadline or committer.poll() is not None:
            raise MirrorFailed(f"{len(_stands(work))} of {groups} groups are captured after {_READY_SECONDS:g} s")
        time.sleep(0.2)


def _stands(work: Path) -> dict[str, int]:
    """Where the groups' first partition stands in the store: all partitions of a commit are captured together."""
    if not (work / STORE).exists():
        return {}
    store = sqlite3.connect(f"file:{work / STORE}?mode=ro", uri=True, timeout=5)
    try:
        return dict(store.execute("SELECT group_id, source_offset FROM group_position WHERE partition = 0"))
    except sqlite3.OperationalError:  # not made yet
        return {}
    finally:
        store.close()


# -- counting --------------------------------------------------------------------------------------


def _count(source: Cluster, logs: Path) -> dict[str, float]:
    """Requests a second that the broker answered, by name, while its request log was on."""
    _log_requests(source, "DEBUG")
    begun, stamp = time.monotonic(), datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
    time.sleep(_COUNTED_SECONDS)
    _log_requests(source, "INFO")
    took = time.monotonic() - begun
    found = Counter(
        name
        for file in logs.glob("server.log*")
        for at, name in _LOGGED.findall(file.read_text(encoding="utf-8"))
        if at > stamp
    )
    return {api: round(count / took, 2) for api, count in sorted(found.items())}


def _log_requests(source: Cluster, level: str) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    entry = resource.AlterableConfig(name=_REQUEST_LOG, config_operation=0, value=level)
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=_BROKER_LOGGER, resource_name="1", configs=[entry])], validate_only=False
    )

    async def step(wire: AdminConnection) -> None:
        for answer in (await wire.send(request, 1)).responses:
            check(answer.error_code, _REQUEST_LOG)

    with AdminConnection(source.alias, ClusterConfig(bootstrap_servers=source.address)) as wire:
        wire.call("log requests", step)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.groups", description=__doc__)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument(
        "--intervals", type=float, nargs="+", default=[5.0, 1.0], help="seconds between a group's commits"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of commits that are judged, for each interval")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--commit", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--interval", type=float, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
