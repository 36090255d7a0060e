"""What the store keeps about a cluster's fence: the newest decision, by cluster and epoch. Pure.

Every closing, opening and narrowing has an epoch, a number of the store that only grows. The newest epoch's
record says how the cluster is meant to be; whoever acts by an older one is late.
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
_MARK = "drkit-fence"


class FenceMethod(StrEnum):
    """What keeps clients out."""

    ACL = "acl"
    COMMAND = "command"
    NONE = "none"


class FenceState(StrEnum):
    """The intended state of a fence. `pending`: the cluster is to be closed and did not answer."""

    PENDING = "pending"
    CLOSING = "closing"
    CLOSED = "closed"
    STANDBY = "standby"
    OPENING = "opening"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """The newest decision about a cluster's fence. `proven`: closed, and shown to be; `detail`: how."""

    cluster: str
    epoch: int
    run: str
    state: FenceState
    method: FenceMethod
    at: datetime
    proven: bool = False
    detail: str = ""

    @property
    def stands(self) -> bool:
        """Whether rules may be on the cluster, or its command may have run: also when it could not be reached since."""
        return self.method is not FenceMethod.NONE and self.state is not FenceState.OPEN

    @property
    def name(self) -> str:
        """The name of its note: nobody who is late can write over a newer one."""
        return f"{self.cluster} {self.epoch:0{_EPOCH_DIGITS}d}"


_RECORD = TypeAdapter(FenceRecord)


def record_text(record: FenceRecord) -> str:
    """The record as its note has it."""
    return _RECORD.dump_json(record).decode()


def newest(notes: Mapping[str, str], cluster: str) -> FenceRecord | None:
    """The cluster's newest record among the notes of a link; None: nothing was ever decided."""
    names = [name for name in notes if name.rpartition(" ")[0] == cluster]
    return _RECORD.validate_json(notes[max(names)]) if names else None


def older(notes: Mapping[str, str], record: FenceRecord) -> list[str]:
    """Names of the notes that a record replaces."""
    return [name for name in notes if name.rpartition(" ")[0] == record.cluster and name < record.name]


def serving_cluster(link: Link, direction: Direction | None) -> str:
    """The cluster that clients of a configured link are to use, by the link's direction (None: nothing is decided)."""
    away = direction in {Direction.SEALED, Direction.REVERSED}
    return link.id.target if away else link.id.source


def mark_of(link: Link) -> Acl:
    """The rule that stands on a cluster as long as drkit's fence of a configured link does.

    It is about a topic that doesn't exist and a principal that nobody has, so it does nothing but say whose the other
    rules are, also where the store's notes are lost.
    """
    id_ = min(link.id, link.id.reversed(), key=str)
    name = f"{_MARK}.{id_.source}.{id_.target}.{patterns_checksum(link):08x}"
    return Acl("topic", name, "literal", f"User:{_MARK}", "*", "write", "deny")


def patterns_checksum(link: Link) -> int:
    """What tells links apart that have the same clusters and other topics."""
    return zlib.crc32("\n".join((*link.topics, "", *link.exclude_topics)).encode())


def is_mark(rule: Acl) -> bool:
    """Whether a rule is a fence's mark."""
    return rule.principal == f"User:{_MARK}" and rule.resource == "topic"
