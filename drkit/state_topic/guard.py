"""A store that has forgotten a link is told from a new one: by the copy of the link's state on the target."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from drkit.config.schema import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.small_topic import Written
from drkit.model.errors import Refused
from drkit.model.topology import Link
from drkit.state_topic import connection
from drkit.state_topic.records import StateKind, section_of, state_topic
from drkit.store.api import Store

log = logging.getLogger(__name__)


RECOVERY = "recovery"
"""StateKind of the note that a recovery leaves: by `STATE`, `BEGUN` or when it was done."""
STATE = "state"
BEGUN = "begun"


def begun(store: Store, link: Link) -> bool:
    """Whether a recovery of the link was begun in this store and not finished."""
    return store.notes(link.id, RECOVERY).get(STATE) == BEGUN


def holds(store: Store, link: Link) -> bool:
    """Whether the store knows of the link's mirroring; not what a recovery that was interrupted has left."""
    return bool(store.topic_states(link.id) or store.watermarks(link.id)) and not begun(store, link)


def check_not_forgotten(link: Link, store: Store, keys: Iterable[bytes]) -> None:
    """Raise `Refused` where a state topic has records of topics (`keys`) and the store has nothing of the link.

    Not where the target has other writers: there the mirror finds its place by provenance, without a store.
    """
    if link.shares_target or holds(store, link) or not any(section_of(key)[0] == StateKind.TOPIC for key in keys):
        return
    raise Refused(
        f"the store has nothing of link {link.id}, and {link.id.target} has a copy of its state",
        meaning="The store was lost, or store.url is another one: a mirror that begins anew would copy everything a "
        "second time, and overwrite that copy",
        remedy=f"drkit store recover --from {link.id.target} --link '{link.id}' fills the store. Where the link is to "
        f"begin anew: delete topic {state_topic(link)} on {link.id.target}",
    )


def check_may_begin(link: Link, store: Store, admin: ClusterAdmin, target: ClusterConfig) -> None:
    """Raise `Refused` where the store has forgotten a link that is about to be mirrored.

    Where the copy may not be seen there is none, either: the mirror can't write it.

    Raises:
        Unreachable: the store has nothing of the link, and the target doesn't answer.
    """
    if link.inverse or holds(store, link):
        return
    topic = state_topic(link)
    found: Mapping[bytes, Written] = {}
    try:
        if connection.exists(admin, topic):
            found = connection.read_all(link.id.target, target, topic)
    except Refused as error:
        log.warning("%s: whether %s has a copy of its state can't be seen: %s", link.id, link.id.target, error)
    check_not_forgotten(link, store, [key for key, each in found.items() if each.value is not None])
