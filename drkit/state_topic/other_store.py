"""Detects a mirror of a link that runs with another store than this process.

Two stores decide independently: after a failover with one, the mirror of the other continues to write where clients
write by then.
Workers of a link join a group on its target, whatever their store, and the client id of each identifies it:
`drkit-mirror/COPY/STORE/OWNER`, with the last part of the name of the link's copy (two configurations between the same
clusters have one group, and ignore each other), the store's identity, and the worker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.model.errors import Refused, Unreachable
from drkit.model.topology import Link, worker_group
from drkit.state_topic.copy_topic import copy_name
from drkit.store.api import Store
from drkit.store.open import in_a_file, store_identity
from drkit.store.workers import read_workers

log = logging.getLogger(__name__)

SESSION_SECONDS = 6.0
"""How long a dead worker stays in the group after its last heartbeat."""
_GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.25
_ASK_SECONDS = 5.0
_WORD = "drkit-mirror"
_PARTS = 3


class _Member(NamedTuple):
    """A worker in the group: its store's identity, and its name (`host:pid:start:machine:token`)."""

    store: str
    owner: str

    def __str__(self) -> str:
        host, _, rest = self.owner.partition(":")
        return f"process {rest.partition(':')[0]} on {host}"


def worker_client_id(copy: str, store_url: str, owner: str) -> str:
    """The client id of a worker in the group of a link with this copy (`copy_topic`)."""
    return f"{_WORD}/{_last_part(copy)}/{store_identity(store_url)}/{owner}"


def mirrors_of_any_store(groups: GroupAdmin, link: Link, copy: str) -> list[str]:
    """The running workers of a link, in words; waits until dead ones have left the group.

    Args:
        groups: the coordinators of the link's target.
        link: the link.
        copy: the name of the topic with its state.

    Raises:
        Unreachable: the target doesn't answer.
    """
    return _found(groups, link, copy, lambda members: members)


def mirrors_of_other_stores(groups: GroupAdmin, link: Link, store: Store, store_url: str) -> list[str]:
    """As `mirrors_of_any_store`, those that use another store than this one; none if drkit may not see groups.

    A worker is noted in its store before it joins the group. The address alone proves nothing: two sites may have a
    store of one name each. One that is noted keeps this store whatever it calls it (some of the hosts, a link to the
    file), but a file may be a copy: there a note under another address counts only while it is renewed.
    """
    own = store_identity(store_url)

    def others(members: list[_Member]) -> list[_Member]:
        if not members:
            return []
        notes, at = read_workers(store, link.id), store.time()
        known = {note.owner for note in notes}
        alive = known if not in_a_file(store_url) else {note.owner for note in notes if note.expires_at > at}
        return [each for each in members if each.owner not in (known if each.store == own else alive)]

    try:
        return _found(groups, link, copy_name(link, store), others)
    except Refused:
        return []


def check_one_store(target: ClusterConfig, link: Link, store: Store, store_url: str) -> None:
    """Raise `Refused` if a mirror of the link is running with another store than this one.

    If the group's coordinator doesn't answer, the group can't have members now.
    """
    try:
        with GroupAdmin(link.id.target, target, timeout_seconds=_ASK_SECONDS) as groups:
            found = mirrors_of_other_stores(groups, link, store, store_url)
    except Unreachable as error:
        log.info("%s: whether a mirror with another store is running can't be seen: %s", link.id, error)
        return
    if found:
        raise other_store(link, found)


def other_store(link: Link, found: Sequence[str]) -> Refused:
    """The refusal because of a mirror that uses another store. `found`: its name."""
    return Refused(
        f"a mirror of {link.id} is running that keeps another store: {found[0]}",
        meaning="store.url of this configuration names another store than the mirror's. Two stores decide apart: the "
        f"mirror would continue writing to {link.id.target} after a failover from this one",
        remedy="Name the mirror's store in store.url. Where this store is the right one: stop that process",
    )


def _found(groups: GroupAdmin, link: Link, copy: str, judged: Callable[[list[_Member]], list[_Member]]) -> list[str]:
    name, deadline = worker_group(link.id), time.monotonic() + SESSION_SECONDS + _GRACE_SECONDS
    while True:
        members = [_member(copy, text) for text in groups.client_ids(name)]
        found = judged([member for member in members if member is not None])
        if not found or time.monotonic() > deadline:
            return sorted(map(str, found))
        time.sleep(_LOOK_SECONDS)


def _last_part(copy: str) -> str:
    return copy.rpartition(".")[2]


def _member(copy: str, client_id: str) -> _Member | None:
    """The worker of a client id; None: it isn't a worker of the link with this copy."""
    word, _, rest = client_id.partition("/")
    parts = rest.split("/", _PARTS - 1)
    if word != _WORD or len(parts) != _PARTS or parts[0] != _last_part(copy):
        return None
    return _Member(parts[1], parts[2])
