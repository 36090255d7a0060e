"""The way back of a link: whether its id is free, and its record made from the link's.

The way back has the id of the other direction: where that is a link of its own (active-active), a failback would
replace its record. Else the link's rows, watermarks and topic states become those of the way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Kind
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lag.diverged_logs import last_batches
from drkit.mapping.invert import invert_mappings, invert_watermark
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts, doubt_of_rows, doubts_on_record
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused
from drkit.model.link_state import FOLLOWED_SETTINGS, SETTINGS_HELD, Direction, Problem, TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.state_topic.store_age import unproven_problem
from drkit.store.api import Store
from drkit.store.transactions import forget_transactions

_WAYS_BACK = frozenset({Kind.FAILBACK, Kind.REPROTECT})


def check_way_back_is_free(estate: ClusterContext, link: LinkId, kind: Kind, run: str | None = None) -> None:
    """Raise `Refused` where the other direction is a link of its own: configured, or mirrored according to the store.

    `run`: the run that is under way; None: nothing has begun.
    """
    back = link.reversed()
    configured = any(each.link().id == back for each in estate.config.links)
    mirrored = is_mirrored(estate.store, back)
    if not configured and not mirrored:
        return
    if kind is Kind.REPROTECT:
        remedy = f"Bring {link} back: drkit failback says how"
    else:
        remedy = (
            f"Stop every mirror, and bring {link} back in a store of its own: with a configuration of this link alone "
            f"and an empty store drkit store recover --from {link.target}, then drkit failback; then recover both "
            'links into another empty store (docs/topologies.md, "One of two regions comes back")'
        )
    if run is not None and mirrored:
        remedy = f"drkit abandon {run} ends this run. {remedy}"
    elif run is not None:
        remedy = f"Take {back} out of the configuration until the run is over; then drkit resume {run}"
    also = "" if configured else ": it isn't in the configuration now, but the store has what it mirrored"
    raise Refused(
        f"{back} is a link of its own (active-active){also}",
        meaning=f"The way back of {link} has its name, and would replace its record, so that it could never continue",
        remedy=remedy,
    )


def is_mirrored(store: Store, link: LinkId) -> bool:
    """Whether the store holds what a mirror of this link, as a link of its own, has recorded; what a failback's or a
    reprotect's way back has recorded under this id doesn't count."""
    if not store.topic_states(link) and not store.watermarks(link):
        return False
    control, forward = store.link_control(link), store.link_control(link.reversed())
    if forward is not None and forward.direction is Direction.REVERSED:
        return False  # this is its way back
    if control is None:
        return True
    if control.direction is Direction.REVERSED:
        return False  # its record was handed over to the other direction
    runs = (run for run in store.runs() if run.run == control.run)
    return not any(run.kind in _WAYS_BACK and run.detail.split(" ")[0] == str(link.reversed()) for run in runs)


def forget_record(store: Store, link: LinkId) -> None:
    """Forget what the link has recorded, before it gets a fresh record: with its group transactions, whose offsets
    have changed their meaning, and with the settings that it followed: what was set since is no change to this record.
    """
    store.forget_link_data(link)
    forget_transactions(store, link)
    for kind in (FOLLOWED_SETTINGS, SETTINGS_HELD):
        store.forget_notes(link, kind, list(store.notes(link, kind)))


class FormerDirection(NamedTuple):
    """The opposite direction's state of a topic: its last epoch, and whether drkit created it."""

    epoch: int
    created_by_drkit: bool


class ReversedLink(NamedTuple):
    """A record of the opposite direction, not yet in the store. `unproven`: the problem `rows_unproven` of each
    partition whose rows came from others that may not be all."""

    states: list[TopicState]
    rows: list[OffsetMapping]
    watermarks: list[Watermark]
    unproven: list[Problem]


def reverse_record(
    store: Store,
    target: ClusterAdmin,
    link: Link,
    before: Mapping[str, FormerDirection],
    reason: str,
    *,
    only_known: bool,
    source_is_gone: bool = False,
    in_doubt: RowDoubts = NO_ROW_DOUBTS,
) -> ReversedLink:
    """Make the record of the other direction, in new epochs, from this one's. Changes nothing.

    Args:
        store: where the record is.
        target: its target, the other direction's source: what the log held where the record ends shows later on
            whether it still is that log.
        link: the direction that recorded.
        before: the other direction's state, by topic name on its target.
        reason: stored with the topics' states.
        only_known: leave out topics that `before` lacks; otherwise they get the epoch after their current one.
        source_is_gone: what it held beyond what was copied is given up: nothing of that gets a place in the new epoch.
        in_doubt: what isn't known of the record's rows, besides what is on record.

    Raises:
        Unreachable: no broker of the target answers.
        DrkitError: nothing is recorded, or the record can't be reversed.
    """
    epochs: dict[str, int] = {}
    states = []
    for state in store.topic_states(link.id).values():
        known = before.get(state.target_topic)
        if known is None and only_known:
            continue
        epochs[state.topic] = epoch = (known.epoch if known is not None else state.epoch) + 1
        states.append(
            TopicState(
                topic=state.target_topic,
                target_topic=state.topic,
                source_topic_id=state.target_topic_id,
                target_topic_id=state.source_topic_id,
                epoch=epoch,
                partitions=state.partitions,
                created_by_drkit=known.created_by_drkit if known is not None else False,
                reason=reason,
            )
        )
    rows: list[OffsetMapping] = []
    watermarks, unproven = [], []
    in_doubt = in_doubt.with_later(doubts_on_record(store.problems(link.id)))
    marks = {
        TopicPartition(link.target_topic(tp.topic), tp.partition): mark
        for tp, mark in store.watermarks(link.id).items()
        if tp.topic in epochs
    }
    last = last_batches(target, {there: mark.target_end for there, mark in marks.items() if mark.target_end})
    for there, found in marks.items():
        tp, topic, epoch = found.tp, there.topic, epochs[found.topic]
        mark = replace(found, source_end=found.source_through) if source_is_gone else found
        its = store.mappings(link.id, tp, mark.epoch)
        rows += invert_mappings(its, mark, topic=topic, epoch=epoch)
        watermarks.append(invert_watermark(mark, topic=topic, epoch=epoch, last=last.get(there)))
        if doubt_of_rows(in_doubt.of(tp), mark, its) is not None:
            why = f"they were made from those of {link.id}, of which that isn't known, either"
            unproven.append(unproven_problem(link.id.reversed(), there, why, now()))
    if not states:
        raise DrkitError(
            f"nothing is recorded of {link.id}",
            meaning="drkit can't make the other direction's record from it",
            remedy="Check the store, then resume",
        )
    return ReversedLink(states, rows, watermarks, unproven)


def save_reversed(store: Store, link: LinkId, turned: ReversedLink) -> None:
    """Store the record for a link that has none."""
    for problem in turned.unproven:  # first: no position by these rows is exact at any moment
        store.put_problem(link, problem)
    store.append_mappings(link, turned.rows)
    store.put_watermarks(link, turned.watermarks)
    store.put_topic_states(link, turned.states)
