"""Which topic on a link's target holds the copy of its state.

A first copy is named after the topic patterns that the link has then (`records.state_topic`), and the store notes the
name: patterns that are edited later keep their copy. A store without that note, as after its loss, takes the topic that
the present patterns name; where there is none, the copy that names a topic of this link which is on the target still.
So links of two configurations between the same clusters, which carry different topics, don't meet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.small_topic import SmallTopicRecord
from drkit.model.errors import Refused
from drkit.model.topology import Link
from drkit.model.wording import and_more
from drkit.state_topic import connection
from drkit.state_topic.records import STATE_TOPICS, StateKind, read_key, state_topic, state_topic_prefix
from drkit.store import codec
from drkit.store.api import LinkStore
from drkit.store.link_notes import is_source_cluster

COPY_NOTE = "state_topic"
"""Kind of the note of the copy's name."""
_NAME = "name"


class AmbiguousCopy(Refused):
    """Several topics may be the copy of one link's state."""


def copy_name(link: Link, store: LinkStore) -> str:
    """The name of the link's copy, whether it exists or not; of a way back, that of its link."""
    link = link.reversed() if link.inverse else link
    return _noted(link, store) or state_topic(link)


def note_copy(link: Link, store: LinkStore, name: str) -> bool:
    """Note the name; returns whether that is new. Durable on return."""
    if _noted(link, store) == name:
        return False
    store.put_notes(link.id, COPY_NOTE, {_NAME: name})
    return True


def is_noted(link: Link, store: LinkStore) -> bool:
    """Whether a mirror or a recovery of this store has noted the copy's name: it isn't new to the link."""
    return _noted(link, store) is not None


def find_copy(link: Link, store: LinkStore | None, admin: ClusterAdmin, target: ClusterConfig) -> str | None:
    """The topic with the copy of a configured link's state; None: there is none.

    Args:
        link: the link.
        store: its store; None: it was lost.
        admin: the target.
        target: its configuration.

    Raises:
        Unreachable: the target doesn't answer.
        AmbiguousCopy: several topics may be it.
        Refused: they may not be seen or read.
    """
    noted = None if store is None else _noted(link, store)
    name = noted or state_topic(link)
    if connection.exists(admin, name):
        return name
    return None if noted is not None else _by_its_topics(link, admin, target)


def copy_under_other_aliases(
    link: Link, admin: ClusterAdmin, target: ClusterConfig, source_id: Callable[[], str | None]
) -> str | None:
    """A topic with the copy of a link that has other aliases, and mirrors a topic of this link to the target; None:
    there is none.

    Args:
        link: a configured link.
        admin: the target.
        target: its configuration.
        source_id: the id of the link's source, called where it matters: copies of links with another source don't
            count. None: it isn't known, and all count.

    Raises:
        Unreachable: a cluster doesn't answer.
        Refused: a copy may not be read.
    """
    found = _with_its_topics(link, admin, target, own=False)
    known = source_id() if found else None
    return min((name for name, copied in found.items() if known is None or copied.source_id == known), default=None)


def _noted(link: Link, store: LinkStore) -> str | None:
    return store.notes(link.id, COPY_NOTE).get(_NAME)


def _by_its_topics(link: Link, admin: ClusterAdmin, target: ClusterConfig) -> str | None:
    found = sorted(_with_its_topics(link, admin, target, own=True))
    if len(found) > 1:
        raise AmbiguousCopy(
            f"{and_more(found)} on {link.id.target} each have topics of {link.id}: which of them is the copy of its "
            "state isn't known",
            meaning="`topics` of the link was edited, and its store has no note of its copy. Nothing was changed",
            remedy="Set `topics` and `exclude_topics` of the link to what they were when it was first mirrored; or "
            f"delete the topic that isn't the link's on {link.id.target}",
        )
    return found[0] if found else None


@dataclass(slots=True)
class _Copied:
    """What a copy is of: ids of the target's topics, and the id of the source."""

    topic_ids: dict[str, str] = field(default_factory=dict)
    source_id: str | None = None


def _with_its_topics(link: Link, admin: ClusterAdmin, target: ClusterConfig, *, own: bool) -> dict[str, _Copied]:
    """The copies that name a topic of the link which is on the target; `own`: of those with its aliases, or others."""
    topics = admin.topics()
    ours = {name: info.topic_id for name, info in topics.items() if link.source_topic(name) is not None}
    prefix = state_topic_prefix(link.id)
    names = sorted(name for name in topics if STATE_TOPICS.fullmatch(name) and own == _of(prefix, name))
    if not ours or not names:
        return {}
    found = {}
    for name, records in connection.read_several(link.id.target, target, names).items():
        copied = _copied(records)
        if any(ours.get(topic) == topic_id for topic, topic_id in copied.topic_ids.items()):
            found[name] = copied
    return found


def _of(prefix: str, name: str) -> bool:
    return name.startswith(prefix) and "." not in name.removeprefix(prefix)


def _copied(records: Mapping[bytes, SmallTopicRecord]) -> _Copied:
    found = _Copied()
    for raw, record in records.items():
        key = read_key(raw)
        if key is None or record.value is None:
            continue
        with suppress(ValueError, TypeError, IndexError):  # a reader of that copy says so
            if key[0] == StateKind.TOPIC:
                state = codec.read_topic_state(*json.loads(record.value))
                found.topic_ids[state.target_topic] = state.target_topic_id
            elif key[0] == StateKind.NOTE and is_source_cluster(str(key[1]), str(key[2])):
                found.source_id = json.loads(record.value)
    return found
