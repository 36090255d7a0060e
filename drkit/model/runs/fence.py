"""A cluster's fence as the store records it: the newest decision, by cluster and epoch. Pure.

Every closing, opening and narrowing gets an epoch, a number in the store that only grows. The record with the newest
epoch says how the cluster should be; a process with an older epoch is late.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import TypeAdapter

from drkit.model.link_state import Direction
from drkit.model.topics.acls import Acl
from drkit.model.topology import Link

FENCES = "fence"
"""Kind of the notes that hold the records: by cluster and epoch."""
_EPOCH_DIGITS = 20


def write_block_kind(cluster: str) -> str:
    """Kind of the notes about topics of a cluster whose writes a scrub blocks: by topic, the settings before, as
    JSON."""
    return f"write_block {cluster}"


_MARK = "drkit-fence"


class FenceMethod(StrEnum):
    """How clients are kept out."""

    ACL = "acl"
    COMMAND = "command"
    NONE = "none"


class FenceState(StrEnum):
    """The intended state of a fence. `pending`: the cluster is to be closed, but did not answer."""

    PENDING = "pending"
    CLOSING = "closing"
    CLOSED = "closed"
    STANDBY = "standby"
    OPENING = "opening"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """The newest decision about a cluster's fence. `proven`: the cluster was shown to be closed; `detail`: how.

    `let_in`: the client that was seen to be let in before a command closed the cluster: once it is turned away, that is
    a proof, whichever attempt sees it.
    """

    cluster: str
    epoch: int
    run: str
    state: FenceState
    method: FenceMethod
    at: datetime
    proven: bool = False
    detail: str = ""
    let_in: str = ""

    @property
    def stands(self) -> bool:
        """Whether rules may be on the cluster, or its fence command may have run, even if it was unreachable since."""
        return self.method is not FenceMethod.NONE and self.state is not FenceState.OPEN

    @property
    def name(self) -> str:
        """The name of its note; it holds the epoch, so a late process can't overwrite a newer note."""
        return f"{self.cluster} {self.epoch:0{_EPOCH_DIGITS}d}"


_RECORD = TypeAdapter(FenceRecord)


def record_text(record: FenceRecord) -> str:
    """The record as the text of its note."""
    return _RECORD.dump_json(record).decode()


def newest(notes: Mapping[str, str], cluster: str) -> FenceRecord | None:
    """The cluster's newest record among the notes of a link, or None."""
    names = [name for name in notes if name.rpartition(" ")[0] == cluster]
    return _RECORD.validate_json(notes[max(names)]) if names else None


def older(notes: Mapping[str, str], record: FenceRecord) -> list[str]:
    """Names of the notes that a record replaces."""
    return [name for name in notes if name.rpartition(" ")[0] == record.cluster and name < record.name]


def serving_cluster(link: Link, direction: Direction | None) -> str:
    """The cluster that clients of a configured link should use, by the link's direction (None: undecided)."""
    away = direction in {Direction.SEALED, Direction.REVERSED}
    return link.id.target if away else link.id.source


def mark_of(link: Link) -> Acl:
    """The ACL that marks a cluster as fenced by drkit for a configured link.

    It concerns a topic and a principal that don't exist, so it has no effect. It identifies drkit's other fence ACLs
    even where the store's notes are lost.
    """
    id_ = min(link.id, link.id.reversed(), key=str)
    name = f"{_MARK}.{id_.source}.{id_.target}.{patterns_checksum(link):08x}"
    return Acl("topic", name, "literal", f"User:{_MARK}", "*", "write", "deny")


def patterns_checksum(link: Link) -> int:
    """Tells links apart that connect the same clusters but carry different topics."""
    return zlib.crc32("\n".join((*link.topics, "", *link.exclude_topics)).encode())


def is_mark(rule: Acl) -> bool:
    """Whether a rule is a fence's mark."""
    return rule.principal == f"User:{_MARK}" and rule.resource == "topic"
