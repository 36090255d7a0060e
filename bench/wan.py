"""Measures a mirror over a slow network: it reads a backlog with delayed packets, `python -m bench.wan --delay SCRIPT`.

Everything runs in its own network namespace, which ends with this command: brokers, the mirror, and iptables rules that
pass each packet of the source broker to a script that delays it for half a round trip. So it needs root, `unshare`,
`iptables` and the kernel's NFQUEUE; if one of them is missing, it names it and does nothing.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from bench.backlog import BacklogCase, copy, load_case
from bench.clusters import Clusters
from bench.mirrors import Drkit, Scene
from bench.processes import MIB, die_with_parent, in_namespace, namespace_lacks, run_in_namespace, say
from bench.report import Row, table
from drkit.lab.toolchain import ensure
from drkit.model.errors import DrkitError
from drkit.model.topology import DEFAULT_BUFFER_BYTES

_QUEUE = "7"
_RECORD_BYTES = 1000
_PARTITIONS = 8
_WINDOW_BYTES = 64 * MIB
_READ_SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class Host:
    """The configuration of the source's machine. `settings`: its broker's; `window`: TCP's limit of bytes in flight."""

    name: str
    megabytes: int
    settings: tuple[tuple[str, str], ...] = ()
    window_bytes: int | None = None


_OWN_WINDOW = (("socket.send.buffer.bytes", "-1"),)  # the kernel's own sizing instead of 100 KiB
HOSTS = (
    Host("as installed", 120),
    Host("socket.send.buffer.bytes=-1", 500, _OWN_WINDOW),
    Host("and net.ipv4.tcp_wmem up to 64 MiB", 1000, _OWN_WINDOW, _WINDOW_BYTES),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table (and JSON to `--out`); returns 0 even if it can't measure here, with the reason."""
    options = _options(arguments)
    lacks = _lacks(options.delay)
    if lacks:
        print(f"skipped: {lacks}")
        return 0
    toolchain = ensure("kafka")  # fetch while there is still a network
    if not in_namespace():
        return run_in_namespace("bench.wan", sys.argv[1:] if arguments is None else arguments)
    rows: list[Row] = []
    for host in HOSTS:
        if host.window_bytes is not None:
            for name in ("tcp_wmem", "tcp_rmem"):  # only in this namespace
                value = f"net.ipv4.{name}=4096 131072 {host.window_bytes}"
                subprocess.run(["sysctl", "-q", "-w", value], check=True)
        with (
            tempfile.TemporaryDirectory(prefix="drkit-wan-") as folder,
            Clusters(Path(folder), say, dict(host.settings)) as clusters,
        ):
            rows += _measure(Scene(Path(folder), clusters, (), toolchain, True, 1, say), host, options)
    print(_table(rows, options.rtt_ms))
    if options.out:
        options.out.write_text(json.dumps({"rtt_ms": options.rtt_ms, "rows": rows}, indent=1))
    return 0


def _measure(scene: Scene, host: Host, options: argparse.Namespace) -> Iterator[Row]:
    """One host: a plain consumer, the mirror with its defaults, with larger buffers, and with several processes."""
    records = host.megabytes * 1_000_000 // _RECORD_BYTES
    case = BacklogCase("wan", 150, _RECORD_BYTES, "none", _PARTITIONS, (records, records))
    load_case(scene, case)
    mirrors = {f"drkit, buffer_bytes {DEFAULT_BUFFER_BYTES // MIB} MiB": Drkit()}
    mirrors |= {f"drkit, buffer_bytes {mib} MiB": Drkit((buffer_line(mib * MIB),)) for mib in options.buffer_mib}
    mirrors |= {f"drkit, --processes {count}": Drkit(processes=count) for count in options.processes}
    with _delayed(scene.clusters.source.address, options):
        rate, read = _consume(scene.clusters.source.address, case)
        say(f"{host.name}, consumer: {rate} MB/s")
        row: Row = {"host": host.name, "reader": "confluent-kafka consumer, defaults", "peak_rss_mib": None}
        yield row | {"mb_per_second": rate, "records": read}
        for name, mirror in mirrors.items():
            with scene.folder() as inner:
                watched = copy(inner, case, mirror)
            rate = _steady_rate([(each.seconds, each.records) for each in watched.observations], records)
            peak = round(watched.peak_rss_bytes / MIB, 1)
            say(f"{host.name}, {name}: {rate} MB/s, peak {peak} MiB")
            row = {"host": host.name, "reader": name, "mb_per_second": rate}
            yield row | {"records": watched.observations[-1].records, "peak_rss_mib": peak}


def buffer_line(size: int) -> str:
    """The line of a link that sets its buffer."""
    return f"buffer_bytes = {size}"


def _steady_rate(observations: Sequence[tuple[float, int]], records: int) -> float | None:
    """MB/s from the observation with a third of it to the last one: large responses come all at once."""
    late = [each for each in observations if each[1] >= records / 3]
    if len(late) < 2 or late[-1][0] <= late[0][0]:  # noqa: PLR2004 - two ends
        return None
    return (late[-1][1] - late[0][1]) * _RECORD_BYTES / 1e6 / (late[-1][0] - late[0][0])


def _consume(address: str, case: BacklogCase) -> tuple[float | None, int]:
    """A plain consumer over the whole topic: MB/s of values by `_steady`, and records."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench-wan", "enable.auto.commit": False})
    parts = [TopicPartition(case.topic, number) for number in range(case.partitions)]
    ends = [consumer.get_watermark_offsets(part, timeout=30)[1] for part in parts]
    consumer.assign([TopicPartition(part.topic, part.partition, OFFSET_BEGINNING) for part in parts])
    read = 0
    observations: list[tuple[float, int]] = []
    give_up = time.monotonic() + _READ_SECONDS
    try:
        while read < sum(ends) and time.monotonic() < give_up:
            message = consumer.poll(1.0)
            if message is None:
                continue
            read += sum(each.error() is None for each in [message, *consumer.consume(10_000, 0)])
            observations.append((time.monotonic(), read))
    finally:
        consumer.close()
    return _steady_rate(observations, sum(ends)), read


@contextmanager
def _delayed(address: str, options: argparse.Namespace) -> Iterator[None]:
    """Delay packets from and to this address for half a round trip each, in this namespace."""
    port = address.rpartition(":")[2]
    # on input: on output they would count against the sender's limit of bytes in flight
    rules = [["INPUT", "-i", "lo", "-p", "tcp", side, port] for side in ("--sport", "--dport")]
    command = [sys.executable, str(options.delay), _QUEUE, str(options.rtt_ms / 2), "0", "0"]
    holder = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - no lock is taken between fork and exec
    )
    try:
        if holder.stdout is None or holder.stdout.readline().strip() != b"ready":
            raise DrkitError(f"{options.delay} did not get ready (NFQUEUE in this kernel?)")
        for rule in rules:
            subprocess.run(["iptables", "-A", *rule, "-j", "NFQUEUE", "--queue-num", _QUEUE], check=True)
        yield
    finally:
        for rule in rules:
            subprocess.run(["iptables", "-D", *rule, "-j", "NFQUEUE", "--queue-num", _QUEUE], check=False)
        holder.send_signal(signal.SIGTERM)
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()


def _lacks(delay: Path) -> str:
    """The missing requirement, or ""."""
    if not delay.is_file():
        return f"{delay} doesn't exist: the script that delays packets (see bench/README.md)"
    probe = f"iptables -A INPUT -i lo -p tcp --sport 1 -j NFQUEUE --queue-num {_QUEUE}"
    return namespace_lacks(("ip", "iptables", "sysctl"), probe, "NFQUEUE")


def _table(rows: Sequence[Row], rtt_ms: float) -> str:
    return f"Round trip {rtt_ms:g} ms\n\n{table(rows, 'host reader mb_per_second peak_rss_mib', 2)}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.wan", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--delay", type=Path, required=True, help="script: QUEUE DELAY_MS JITTER_MS LOSS")
    parser.add_argument("--rtt-ms", type=float, default=100.0, help="round trip (100)")
    parser.add_argument(
        "--buffer-mib", type=int, nargs="*", default=[128], help="buffers to try beside the default (128)"
    )
    parser.add_argument(
        "--processes", type=int, nargs="*", default=[4], help="workers to try with the default buffer (4)"
    )
    parser.add_argument("--out", type=Path, default=None, help="write the figures there, too, as JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
