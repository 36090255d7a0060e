"""Reads the records of the first findings from both sides, for a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drkit.config import Config
from drkit.kafka.client.log_reader import LogReader
from drkit.kafka.protocol.record_columns import Headers, RecordColumns
from drkit.kafka.protocol.records import Damaged
from drkit.model.audit.audit_result import Finding
from drkit.model.errors import DrkitError
from drkit.model.topology import LinkId

_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Content:
    """A record as it is on one side. `stamp` in ms."""

    stamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class FindingWitness:
    """A finding with the records it names; text where one can't be shown, None where there is none."""

    finding: Finding
    source: Content | str | None
    target: Content | str | None


def witnesses(findings: Sequence[Finding], link: LinkId, config: Config) -> list[FindingWitness]:
    """Read the records of these findings. What can't be read says why; nothing is raised for it."""
    sides: list[list[Content | str | None]] = []
    for alias, places in (
        (link.source, [(each.topic, each.partition, each.source_offset) for each in findings]),
        (link.target, [(each.target_topic, each.partition, each.target_offset) for each in findings]),
    ):
        with LogReader(alias, config.clusters[alias], timeout_seconds=_PATIENCE_SECONDS) as reader:
            sides.append(
                [None if offset is None else read_content(reader, topic, n, offset) for topic, n, offset in places]
            )
    return [FindingWitness(*each) for each in zip(findings, sides[0], sides[1], strict=True)]


def read_content(reader: LogReader, topic: str, partition: int, offset: int) -> Content | str:
    """The record at an offset; words where it can't be shown."""
    columns = RecordColumns()
    try:
        for batches in reader.read(topic, partition, offset, offset + 1):
            for batch in batches:
                columns.add(batch, offset, offset + 1)
    except (DrkitError, Damaged) as error:
        return f"could not be read: {error.what if isinstance(error, DrkitError) else error}"
    if not len(columns):
        return "no longer there"
    return Content(columns.stamps[0], columns.keys[0], columns.values[0], columns.headers[0] or [])
