"""What a mirror or a decision refuses to begin with: a store that lacks the link, was recovered in part, or is older
than the copy of the link's state on the target (`store_age`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.small_topic import SmallTopicRecord
from drkit.model.errors import Refused
from drkit.model.link_state import LinkControl
from drkit.model.topology import Link, LinkId
from drkit.state_topic import connection
from drkit.state_topic.copy_topic import (
    AmbiguousCopy,
    copy_name,
    copy_under_other_aliases,
    find_copy,
    is_noted,
    note_copy,
)
from drkit.state_topic.link_copy import LinkCopy, copy_of
from drkit.state_topic.records import StateKind, section_of
from drkit.state_topic.store_age import is_later, older_than, recovery_of
from drkit.store.api import Store, WholeStore

log = logging.getLogger(__name__)

RECOVERY = "recovery"
"""Kind of the note of a recovery: under `STATE`, `BEGUN`, `RESTORING` or its time; under `RESTORED`, the backup's
time; under `BEGUN_ANEW`, the copy's topic that was there before the store."""
STATE = "state"
RESTORED = "restored"
BEGUN = "begun"
RESTORING = "restore begun"
BEGUN_ANEW = "begun anew"


def begun(store: Store, link: Link) -> str | None:
    """What began to fill this store with the link and didn't finish: a recovery (`BEGUN`), or a restore of the whole
    store (`RESTORING`); or None."""
    return begun_by(store.notes(link.id, RECOVERY).get(STATE))


def begun_by(state: str | None) -> str | None:
    """What a note under `STATE` says that was begun and isn't over, or None."""
    return state if state in {BEGUN, RESTORING} else None


def holds(store: Store, link: Link) -> bool:
    """Whether the store has data of the link's mirroring, other than that of an interrupted recovery."""
    return bool(store.topic_states(link.id) or store.watermarks(link.id)) and not begun(store, link)


def check_recovered(store: Store, link: Link) -> None:
    """Raise `Refused` if the store has only the data of an interrupted recovery."""
    if by := begun(store, link):
        raise interrupted(link.id, by)


def check_all_recovered(store: WholeStore) -> None:
    """Raise `Refused` if the store has only a part of any link's data: a copy of it would count as whole."""
    for link in store.links():
        if by := begun_by(store.notes(link, RECOVERY).get(STATE)):
            raise interrupted(link, by)


def interrupted(link: LinkId, by: str) -> Refused:
    """Why a store that was partly filled by this (`begun`) can't be used for its link."""
    recover = f"drkit store recover --from {link.target} --link '{link}'"
    if by == RESTORING:
        what = "the restore of the store"
        remedy = (
            f"Run drkit store restore --from FILE again, to its end; or name a new store in store.url, then {recover}"
        )
    else:
        what, remedy = f"the recovery of {link}", f"Run {recover} again, to its end"
    return Refused(
        f"{what} was interrupted: the store has only a part of its state",
        meaning="Positions, topics or decisions may be missing from it. Nothing was changed",
        remedy=remedy,
    )


def note_earlier_copy(link: Link, store: Store, topic: str) -> None:
    """Note that the copy's topic, which is there, is older than the store, if it is: another store's mirror made it,
    and may have mirrored before it had a record. To be called before the name is noted. Durable on return."""
    if not (link.inverse or link.shares_target or is_noted(link, store) or holds(store, link)):
        store.put_notes(link.id, RECOVERY, {BEGUN_ANEW: topic})


def check_not_forgotten(link: Link, store: Store, topic: str, keys: Iterable[bytes]) -> None:
    """Raise `Refused` if the state topic has records of topics (`keys`) and the store has no data of the link.

    Not if the target has other writers: there the mirror finds its position by provenance, without a store.
    """
    if link.shares_target or holds(store, link) or not any(section_of(key)[0] == StateKind.TOPIC for key in keys):
        return
    raise Refused(
        f"the store has nothing of link {link.id}, and {link.id.target} has a copy of its state",
        meaning="The store was lost, or store.url is another one: a mirror that begins again would copy everything a "
        "second time, and overwrite that copy",
        remedy=f"drkit store recover --from {link.id.target} --link '{link.id}' fills the store. Where the link is to "
        f"begin again: delete topic {topic} on {link.id.target}",
    )


def check_not_older(
    link: Link, store: Store, topic: str, found: Mapping[bytes, SmallTopicRecord], admin: ClusterAdmin
) -> None:
    """Raise `Refused` if the copy in the topic (`found`, read before) knows what a mirror can't settle by comparing
    both logs.

    Raises:
        Unreachable: the target doesn't answer.
    """
    check_no_later_decision(link, store, topic, found)
    check_knows_all(link, store, copy_of(link, topic, found), admin)


def check_no_later_decision(link: Link, store: Store, topic: str, found: Mapping[bytes, SmallTopicRecord]) -> None:
    """Raise `Refused` if the link was failed over by a later decision (of `found`, read before) than the store has.

    With an older store the link is active again, and its mirror would write below the clients.
    """
    decisions = {key: each for key, each in found.items() if section_of(key)[0] == StateKind.CONTROL}
    _check_decision(link, store, copy_of(link, topic, decisions).control)


def check_knows_all(link: Link, store: Store, copy: LinkCopy, admin: ClusterAdmin) -> None:
    """Raise `Refused` if the copy (read before) has what the store doesn't know at all
    (`OlderStore.unknown`), or newer watermarks of a link that alters records.

    A mirror would take the records of such a topic on the target for somebody else's, mirror them a second time, and
    remove the topic from the copy. Of a link that alters records both logs don't tell what the rows did: it would halt,
    and overwrite the copy's rows. Not if the target has other writers: there it finds its position by provenance.

    Raises:
        Unreachable: the target doesn't answer.
    """
    older = None if link.shares_target else older_than(copy, store, link, admin)
    if older is None or not (older.unknown or (link.alters and older.observed_later)):
        return
    what = "map wrongly" if older.lost else "copy a second time" if older.unknown else "halt at"
    raise Refused(
        f"the store is older than its copy on {link.id.target}, {older.knows_more()}",
        meaning="A backup of the store was brought back, store.url is another one, or the store lost rows. A mirror "
        f"would {what} what the store doesn't know. Nothing was changed",
        remedy=recovery_of(link.id),
    )


def check_restored(link: Link, store: Store, admin: ClusterAdmin, target: ClusterConfig) -> None:
    """Raise `Refused` if a store was restored from a backup and its copy on the target knows more, or that is unknown.

    As `check_not_older`. Called before a decision about the link, which would replace a later one in the copy. Once
    checked, it isn't repeated.

    Raises:
        Unreachable: the target doesn't answer.
    """
    if RESTORED not in store.notes(link.id, RECOVERY):
        return
    topic = find_copy(link, store, admin, target)
    if topic is not None:
        check_not_older(link, store, topic, connection.read_all(link.id.target, target, topic), admin)
    store.forget_notes(link.id, RECOVERY, [RESTORED])


def _check_decision(link: Link, store: Store, newest: LinkControl | None) -> None:
    control = store.link_control(link.id)
    if newest is None or newest.direction.serves_source or not is_later(newest, control):
        return
    version = 0 if control is None else control.version
    by = f" by run {newest.run}" if newest.run else ""
    raise Refused(
        f"the store is older than the copy of its state on {link.id.target}: there link {link.id} is "
        f"{newest.direction.value}{by} (decision {newest.version}), the store has decision {version}",
        meaning="A backup of the store was brought back, or store.url is another one. A mirror would write into what "
        "clients use by now",
        remedy=recovery_of(link.id),
    )


def check_may_begin(
    link: Link, store: Store, admin: ClusterAdmin, target: ClusterConfig, source_id: Callable[[], str]
) -> str:
    """Raise `Refused` if the store lacks a link that is about to be mirrored, has only a part of it, or is older than
    its copy.

    If drkit may not see the copy, there is none: the mirror can't write it.

    Args:
        link: the link.
        store: its store.
        admin: its target.
        target: the target's configuration.
        source_id: the id of its source.

    Returns:
        the name of the copy; where it may be seen, it is noted in the store.

    Raises:
        Unreachable: a cluster doesn't answer.
    """
    check_recovered(store, link)
    topic = copy_name(link, store)
    if link.inverse:
        return topic
    there: str | None = None
    found: Mapping[bytes, SmallTopicRecord] = {}
    try:
        if (there := find_copy(link, store, admin, target)) is not None:
            topic = there
            found = connection.read_all(link.id.target, target, topic)
    except AmbiguousCopy:
        raise
    except Refused as error:
        log.warning("%s: whether %s has a copy of its state can't be seen: %s", link.id, link.id.target, error)
        return topic
    keys = [key for key, each in found.items() if each.value is not None]
    check_not_forgotten(link, store, topic, keys)
    check_not_older(link, store, topic, found, admin)
    _check_aliases(link, store, admin, target, source_id)
    if there is not None:
        note_earlier_copy(link, store, topic)
    note_copy(link, store, topic)
    return topic


def _check_aliases(
    link: Link, store: Store, admin: ClusterAdmin, target: ClusterConfig, source_id: Callable[[], str]
) -> None:
    """Raise `Refused` if the store has nothing of the link, and the same clusters have a link under other aliases."""
    if link.shares_target or holds(store, link):
        return
    try:
        copy = copy_under_other_aliases(link, admin, target, source_id)
    except Refused as error:
        log.warning("%s: copies of other links on %s can't be seen: %s", link.id, link.id.target, error)
        return
    if copy is None:
        return
    raise Refused(
        f"topics of {link.id} are mirrored to {link.id.target} by a link of the same clusters under other aliases: "
        f"{copy} there has a copy of its state",
        meaning="drkit knows a link by its aliases. A mirror would copy everything a second time. Nothing was changed",
        remedy="Give the clusters the aliases of before, which are in that topic's name (SOURCE.TARGET). Where the "
        f"link is to begin again: delete topic {copy} on {link.id.target}",
    )
