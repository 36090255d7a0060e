"""The ports of a failback: the real mirror, and a salvage and an audit with a plain reader.

The end-to-end test and their own tests cover Spark's audit and salvage; here every record is read and compared without
them, so that many failbacks take little time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from drkit.failover.context.interfaces import PATIENCE_SECONDS, AuditVerdict, Ports, Salvaged
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.errors import DrkitError, FolderUnusable
from drkit.model.topology import Link
from tests.support.links.estates import OwnLink


@dataclass
class RealMirror:
    own: OwnLink

    def catch_up(self, link: Link, say: Callable[[str], None], /, *, patience_seconds: float = PATIENCE_SECONDS) -> str:
        say(f"mirroring {link.id}")
        runtime = MirrorRuntime(self.own.config, link, self.own.store, patience_seconds=patience_seconds)
        report = runtime.run(until_caught_up=True)
        if report.halted or not report.caught_up:
            raise DrkitError(f"{link.id} did not catch up: {report.halted}")
        return f"{report.records} records brought over"


@dataclass
class ReadingSalvager:
    own: OwnLink

    def salvage(
        self,
        link: Link,
        topics: Sequence[str],
        positions: Sequence[Mapping[str, Any]],
        out: Path,
        say: Callable[[str], None],
        /,
    ) -> Salvaged:
        try:
            out.mkdir(parents=True)
            (out / "room").write_bytes(b"\0" * 4096)
            (out / "room").unlink()
        except OSError as error:
            raise FolderUnusable(f"{out} can't be used: {error.strerror}") from error
        say(f"reading what only {link.id.source} holds")
        kept: dict[str, int] = {}
        lines = []
        live = self.own.topic_names(link.id.target)
        for topic in topics:
            name = link.target_topic(topic)
            there = self.own.values(link.id.target, name) if name in live else {}
            kept[topic] = 0
            for partition, records in self.own.records(link.id.source, topic).items():
                left = Counter(there.get(partition, ()))
                for offset, value in records.items():
                    if left[value]:
                        left[value] -= 1
                        continue
                    lines.append(json.dumps([topic, partition, offset, value]))
                    kept[topic] += 1
        text = "".join(f"{line}\n" for line in lines)
        (out / "records.jsonl").write_text(text, encoding="utf-8")
        (out / "positions.json").write_text(json.dumps(list(positions)), encoding="utf-8")
        sums = {name: sha256((out / name).read_bytes()).hexdigest() for name in ("records.jsonl", "positions.json")}
        (out / "manifest.json").write_text(json.dumps(sums), encoding="utf-8")
        return Salvaged(str(out), kept)

    def check(self, path: str, /) -> None:
        try:
            sums = json.loads((Path(path) / "manifest.json").read_text(encoding="utf-8"))
            whole = all(sha256((Path(path) / name).read_bytes()).hexdigest() == each for name, each in sums.items())
        except (OSError, ValueError) as error:
            raise DrkitError(f"{path} can't be read: {error}") from error
        if not whole:
            raise DrkitError(f"{path} was changed")


@dataclass
class ReadingAuditor:
    own: OwnLink

    def audit(self, link: Link, say: Callable[[str], None], /) -> AuditVerdict:
        say(f"reading both sides of {link.id}")
        compared = 0
        for topic in sorted(self.own.topic_names(link.id.source)):
            if not link.covers_topic(topic):
                continue
            here = self.own.values(link.id.source, topic)
            there = self.own.values(link.id.target, link.target_topic(topic))
            compared += sum(len(values) for values in there.values())
            if not all(_is_copy(there[partition], values) for partition, values in here.items()):
                return AuditVerdict("deviated", f"{topic} differs")
        return AuditVerdict("clean", f"{compared} records compared")


def _is_copy(there: Sequence[str], here: Sequence[str]) -> bool:
    """Whether `there` equals `here`, which may have lost its beginning since it was copied."""
    begins = there.index(here[0]) if here and here[0] in there else 0
    copied = there[begins:]
    return list(copied) == list(here[: len(copied)])


def reading_ports(own: OwnLink, salvage_root: Path) -> Ports:
    """The real mirror; salvage and audit by reading."""
    return Ports(RealMirror(own), ReadingSalvager(own), ReadingAuditor(own), salvage_root)


def salvaged(folder: Path) -> set[str]:
    """The values of all records in the salvages below the folder."""
    return {json.loads(line)[3] for file in folder.rglob("records.jsonl") for line in file.read_text().splitlines()}
