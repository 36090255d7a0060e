"""The rooms that failback needs: the real mirror, and a salvage and an audit by a plain reader.

Spark's audit and salvage are tried in the end-to-end test and in their own tests; here every record
is read and compared without them, so that many failbacks stay affordable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from drkit.failover.ports import AuditVerdict, CaughtUp, Ports, Salvaged
from drkit.mirror.runtime import MirrorRuntime
from drkit.model.errors import DrkitError
from drkit.model.topology import Link, TopicPartition
from tests.support.estates import OwnLink


@dataclass
class RealMirror:
    own: OwnLink

    def catch_up(self, link: Link, say: Callable[[str], None], /) -> CaughtUp:
        say(f"mirroring {link.id}")
        report = MirrorRuntime(self.own.config, link, self.own.store).run(until_caught_up=True)
        if report.halted or not report.caught_up:
            raise DrkitError(f"{link.id} did not catch up: {report.halted}")
        return CaughtUp(report.records, f"{report.records} records brought over")


@dataclass
class ReadingSalvager:
    own: OwnLink

    def salvage(self, link: Link, through: Mapping[TopicPartition, int], out: Path, /) -> Salvaged:
        out.mkdir(parents=True)
        lines = []
        for topic in sorted({tp.topic for tp in through}):
            for partition, records in self.own.records(link.id.source, topic).items():
                floor = through.get(TopicPartition(topic, partition))
                if floor is not None:
                    lines += [json.dumps([topic, partition, o, v]) for o, v in records.items() if o >= floor]
        (out / "records.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return Salvaged(len(lines), str(out))


@dataclass
class ReadingAuditor:
    own: OwnLink

    def audit(self, link: Link, /) -> AuditVerdict:
        compared = 0
        for topic in sorted(self.own.topic_names(link.id.source)):
            if not link.covers_topic(topic):
                continue
            here = self.own.values(link.id.source, topic)
            there = self.own.values(link.id.target, link.target_topic(topic))
            compared += sum(len(values) for values in there.values())
            if any(there[partition] != values[: len(there[partition])] for partition, values in here.items()):
                return AuditVerdict("deviated", f"{topic} differs")
        return AuditVerdict("clean", f"{compared} records compared")


def reading_ports(own: OwnLink, salvage_root: Path) -> Ports:
    """The real mirror; salvage and audit by reading."""
    return Ports(RealMirror(own), ReadingSalvager(own), ReadingAuditor(own), salvage_root)
