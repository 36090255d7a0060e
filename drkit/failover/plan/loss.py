"""What a run loses: source offsets that the target lacks at a moment, by topic, exact or bounded. Pure.

Unknown values are None. While the source is gone, records written after the last look at it aren't counted: the number
is a lower bound, and the age is at least the time since that look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from drkit.failover.context.state_machine import Loss, TopicLoss
from drkit.failover.snapshot.snapshot import PartitionView
from drkit.lag.waiting_records import behind_open_transactions, may_be_younger, undated
from drkit.mapping.translate import left_unread
from drkit.model.link_state import DELETED_ON_SOURCE
from drkit.model.totals import greatest, total
from drkit.model.wording import and_more, counted


def loss_at(partitions: Iterable[PartitionView], moment: datetime) -> Loss:
    """What of these partitions isn't on the target, and its age at `moment` (the fence).

    If a partition's source doesn't answer now, it may have received records since the last look: the loss may be as old
    as that look, whatever it saw. The same holds for a partition that lags without a first sighting of its lag: it was
    caught up at the last look.

    Records held by open transactions count in full: which of them will be aborted is unknown. They are as old as the
    first sight of a high watermark beyond what is mirrored (`Watermark.waiting`).
    """
    by_topic: dict[str, list[PartitionView]] = defaultdict(list)
    for view in partitions:
        by_topic[view.topic].append(view)
    topics = tuple(_of_topic(topic, views, moment) for topic, views in sorted(by_topic.items()))
    every = [view for views in by_topic.values() for view in views]
    unknown = [view for view in every if view.lag is None]
    told = [view.missing for view in every if view.lag is not None]
    said = [missing.reason for missing in told if missing.reason is not None]
    if held := sum(view.held for view in every):
        said.append(behind_open_transactions(held))
    said += _undated(every)
    if unrecorded := sorted({view.topic for view in every if view.lag and view.watermark is None}):
        said.append(
            f"since when {and_more(unrecorded)} waits isn't known: no mirror has recorded anything about it yet"
        )
    if before := sorted({view.topic for view in every if view.lag and _held_before(view)}):
        said.append(held_before(before))
    if shorter := sorted({view.topic for view in every if view.lag and _may_have_lost_more(view)}):
        said.append(
            f"both sides hold other records of {and_more(shorter)}: what the source held beyond may be gone, too"
        )
    unjudged = tuple(missing.reason for missing in told if missing.at_least and missing.reason is not None)
    seen = [view.watermark.observed_at for view in every if view.watermark is not None and view.source_end is None]
    live = any(view.source_end is not None for view in every)
    blind = [view for view in every if view.source_end is None]
    reason = and_more(said, separator="; ") or None
    if not topics:
        reason = "the link has no partitions yet"
    elif unknown:
        why = unknown[0].missing.reason or "nothing was recorded"
        reason = f"how much is missing isn't known of {and_more([str(view.tp) for view in unknown])}: {why}"
    elif blind:
        reason = and_more([*_blind(blind, _looked(moment, seen)), *([reason] if reason else [])], separator="; ")
    return Loss(
        records=total([topic.records for topic in topics]) if topics else None,
        seconds=greatest([topic.seconds for topic in topics]) if topics else None,
        observed_at=min(seen, default=moment if live else None),
        by_topic=topics,
        reason=reason,
        lower_bound=bool(blind or unjudged),
        unjudged=unjudged,
        upper_bound=bool(before or shorter or any(view.held for view in blind))
        or any(missing.at_most for missing in told),
    )


def _undated(views: Iterable[PartitionView]) -> Iterator[str]:
    """Why since when records wait isn't known, or not exactly, though a mirror has seen them."""
    waiting = {view.tp: view.watermark.waiting for view in views if view.lag and view.watermark is not None}
    if unseen := [tp for tp, each in waiting.items() if each is not None and each.since is None]:
        yield undated(unseen)
    if younger := [tp for tp, each in waiting.items() if each is not None and each.since is not None and each.at_most]:
        yield may_be_younger(younger)


def held_before(topics: Sequence[str]) -> str:
    """Why so much of these topics counts as lost at most."""
    one = len(topics) == 1
    return (
        f"{and_more(topics)} {'was' if one else 'were'} accepted as {'a new topic' if one else 'new topics'} and "
        f"{'is' if one else 'are'} not all mirrored since: what the target has from before is counted, too"
    )


def _held_before(view: PartitionView) -> bool:
    """Whether the target may hold some of what isn't mirrored, from before the topic was accepted as a new one."""
    return left_unread(view.missing.through or 0, view.source_end, view.former)


def _may_have_lost_more(view: PartitionView) -> bool:
    """Whether its source doesn't answer, and had lost mirrored records: its log may end further down by now."""
    return view.source_end is None and view.missing.parted_end is not None


def _blind(views: Sequence[PartitionView], ago: str) -> Iterator[str]:
    """Why what partitions hold on the source isn't known: their topics were deleted there, or it is silent."""
    gone = [view for view in views if any(problem.kind in DELETED_ON_SOURCE for problem in view.problems)]
    if silent := len(views) - len(gone):
        told = [f"{view.tp}: {view.silent}" for view in views if view.silent is not None]
        which = counted(silent, "partition") + (f" ({and_more(told, separator='; ')})" if told else "")
        yield f"the source does not answer for {which}, {ago}: what came since isn't counted"
    if gone:
        names = and_more(sorted({view.topic for view in gone}))
        yield f"the source has deleted {names}, {ago}: what came there since isn't counted"


def _of_topic(topic: str, views: Sequence[PartitionView], moment: datetime) -> TopicLoss:
    lags = [view.lag for view in views]
    ages = [_age(view, lag, moment) for view, lag in zip(views, lags, strict=True)]
    return TopicLoss(topic, total(lags), greatest(ages))


def _looked(moment: datetime, seen: Sequence[datetime]) -> str:
    """When a source that doesn't answer was last seen."""
    if not seen:
        return "never looked at"
    if max(seen) > moment:
        ahead = (max(seen) - moment).total_seconds()
        return f"last looked at {ahead:,.1f} s after the fence, by a clock that is ahead of this machine's, or was"
    return f"last looked at {(moment - min(seen)).total_seconds():,.1f} s before"


def _age(view: PartitionView, lag: int | None, moment: datetime) -> float | None:
    if lag == 0 and view.source_end is not None:
        return 0.0
    if lag is None or view.watermark is None:
        return None
    if view.source_end is None and view.watermark.observed_at > moment:
        return None  # the clocks differ: the time since the last look is unknown
    waiting = view.watermark.waiting if lag else None
    if waiting is not None and waiting.since is None:
        return None  # a mirror began to look when a transaction was open already
    stamps = view.watermark.behind_since, view.missing.since, None if waiting is None else waiting.since
    known = [since for since in stamps if since is not None]
    return max(0.0, (moment - min(known, default=view.watermark.observed_at)).total_seconds())
