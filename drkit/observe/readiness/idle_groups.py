"""Whether Kafka will delete the committed offsets of groups that nobody reads with.

A broker deletes the offsets of a classic group `offsets.retention.minutes` after its last member left, and those of
other groups that long after each commit (KIP-211). It tells neither moment. What is known: whether a group has
committed another offset since the oldest state of the link's timeline, and when a failover committed its offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from drkit.kafka.admin.clusters import Clusters
from drkit.kafka.groups.group_admin import GroupInfo
from drkit.model.groups import StatesAround
from drkit.model.link_state import Direction
from drkit.model.wording import and_more, counted
from drkit.observe.drill_history import age_in_words
from drkit.observe.link_status import LinkStatus
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.store.api import Store

IDLE_GROUPS = "groups without members"
_WITHOUT_MEMBERS = "Empty"
Series = tuple[str, str]
"""Group and topic."""


def idle_groups_check(status: LinkStatus, store: Store, clusters: Clusters, at: datetime) -> Check:
    """Before a failover, of the source: which groups could lose their offsets before they are moved.

    Raises:
        Unreachable: the source or the store doesn't answer.
    """
    link = status.link
    idle = idle_groups(status, clusters.groups(link.id.source, may_be_gone=True).list_groups())
    retention = clusters.admin(link.id.source, may_be_gone=True).offsets_retention()
    before = at - min(timedelta(seconds=link.timeline.keep_seconds), retention / 2)
    known = store.group_states_around(link.id, before) if idle and link.timeline.on else []
    return judged_before(status, idle, retention, known, at)


def moved_groups_check(status: LinkStatus, store: Store, clusters: Clusters, at: datetime) -> Check:
    """After a failover, of the target: its retention runs since the failover for groups that nobody reads with.

    Raises:
        Unreachable: the target or the store doesn't answer.
    """
    target = status.link.id.target
    idle = idle_groups(status, clusters.groups(target, may_be_gone=True).list_groups())
    retention = clusters.admin(target, may_be_gone=True).offsets_retention()
    control = store.link_control(status.link.id)
    sealed = control.changed_at if control is not None and control.direction is Direction.SEALED else None
    return judged_after(target, idle, retention, sealed, at)


def idle_groups(status: LinkStatus, listed: Mapping[str, GroupInfo]) -> dict[str, GroupInfo]:
    """The groups with a captured position that have no members, by a cluster's listing of its groups."""
    groups = {each.group for each in status.groups if each.type is None}
    return {name: listed[name] for name in sorted(groups & listed.keys()) if listed[name].state == _WITHOUT_MEMBERS}


def judged_before(
    status: LinkStatus, idle: Collection[str], retention: timedelta, known: Collection[StatesAround], at: datetime
) -> Check:
    """The check of what the source and the timeline tell. Pure.

    Args:
        status: has the captured positions.
        idle: groups without members.
        retention: of the source.
        known: the states around the oldest moment that counts, of those that the timeline still has.
        at: now.
    """
    source, target = status.link.id.source, status.link.id.target
    if not idle:
        return Check(IDLE_GROUPS, CheckOutcome.OK, f"no group with a captured position is without members on {source}")
    positions: dict[Series, set[tuple[int, int | None]]] = {}
    for each in status.groups:
        positions.setdefault((each.group, each.topic), set()).add((each.partition, each.source_offset))
    oldest = {(each.group, each.topic): state for each in known if (state := each.then or each.following) is not None}
    moved: dict[str, datetime] = {}  # when each group was last seen to stand elsewhere
    for (group, topic), state in oldest.items():
        then = {(commit.partition, commit.offset) for commit in state.positions}
        if then != positions.get((group, topic), then):
            moved[group] = max(moved.get(group, state.at), state.at)
    still = [group for group in idle if group not in moved]
    kept = f"{source} deletes their offsets {_days(retention)} after their last member or commit"
    remedy = (
        f"Start their consumers if they are still needed, or raise offsets.retention.minutes on {source} and {target}: "
        "a failover moves only groups that have offsets"
    )
    if not still:
        since = min(moved[group] for group in idle)
        why = f"{counted(len(idle), 'group')} without members: {kept}, and all have committed since {_minute(since)}"
        if (left := since + retention - at) >= retention / 4:
            return Check(IDLE_GROUPS, CheckOutcome.OK, why)
        keeps = f"keeps them for {_days(left)} more" if left > timedelta() else "may not keep them any more"
        return Check(IDLE_GROUPS, CheckOutcome.WARN, f"{why}, which alone {keeps}", remedy)
    begins = min((oldest[key].at for key in oldest if key[0] in still), default=None)
    history = (
        "no history of them is kept"
        if begins is None
        else f"their history, which begins {_minute(begins)}, has no other offset"
    )
    why = (
        f"{counted(len(still), 'group')} without members ({and_more(still)}): {kept}. When that was isn't known: Kafka "
        f"doesn't tell it, and {history}"
    )
    return Check(IDLE_GROUPS, CheckOutcome.WARN, why, remedy)


def _days(retention: timedelta) -> str:
    return age_in_words(retention.total_seconds())


def _minute(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"


def judged_after(
    target: str, idle: Mapping[str, GroupInfo], retention: timedelta, sealed: datetime | None, at: datetime
) -> Check:
    """The check of what the target tells. Pure. `sealed`: when the link was failed over; None: not known."""
    if not idle:
        return Check(IDLE_GROUPS, CheckOutcome.OK, f"no moved group is without members on {target}")
    remedy = f"Start their consumers, or raise offsets.retention.minutes on {target}"
    known = {} if sealed is None else {name: each for name, each in idle.items() if each.expires_by_commit}
    unknown = [name for name in idle if name not in known]
    said = []
    if unknown:
        said.append(
            f"{counted(len(unknown), 'moved group')} without members on {target} ({and_more(unknown)}): it deletes "
            f"their offsets {_days(retention)} after their last member or commit, and doesn't tell when that was"
        )
    left = retention if sealed is None else sealed + retention - at
    if known:
        names = f"{counted(len(known), 'moved group')} without members on {target} since the failover"
        keeps = (
            f"it keeps their offsets for {_days(left)} more at least, of {_days(retention)}"
            if left > timedelta()
            else f"it kept their offsets for {_days(retention)}, and may delete them now"
        )
        said.append(f"{names} ({and_more(list(known))}): {keeps}")
    if unknown or left < retention / 2:
        return Check(IDLE_GROUPS, CheckOutcome.WARN, "; ".join(said), remedy)
    return Check(IDLE_GROUPS, CheckOutcome.OK, "; ".join(said))
