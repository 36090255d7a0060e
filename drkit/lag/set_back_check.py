"""Checks, before a target is changed as its source was, that the source still holds what was mirrored."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.source_divergence import compare_source
from drkit.lag.batch_comparison import compare_batches
from drkit.lag.unmirrored_tail import LinkSides, unmirrored_tail
from drkit.model.errors import DrkitError
from drkit.model.link_state import TopicState
from drkit.model.topology import Link
from drkit.model.wording import and_more
from drkit.store.api import Store


def why_maybe_set_back(
    source: ClusterAdmin,
    link: Link,
    store: Store,
    topics: Mapping[str, TopicState],
    sides: Callable[[], LinkSides] | None,
) -> str | None:
    """Why a source may have been set back below what was mirrored; None: each partition holds what was mirrored last
    (or nothing was, or retention has removed it since), as it shows now.

    Args:
        source: the cluster.
        link: the link.
        store: its watermarks.
        topics: the topics to compare, which both clusters have as they were mirrored.
        sides: connects to both clusters, for what the cleaner wrote anew; None: the target has other writers.

    Raises:
        Unreachable: the store doesn't answer.
    """
    marks = {
        tp: mark
        for tp, mark in store.watermarks(link.id).items()
        if (state := topics.get(tp.topic)) is not None and state.epoch == mark.epoch
    }
    if not marks:
        return None
    seen = compare_source(source, marks, topics, committed=False)
    try:
        batches = compare_batches(source, marks.values())
        left = [marks[tp] for tp in batches.rewritten] if sides is not None else []
        tail = unmirrored_tail(sides(), left) if sides is not None and left else None
    except DrkitError as error:
        return f"{link.id.source} can't be compared with what was mirrored: {error.what}"
    others = {*seen.diverged, *batches.replaced, *(tail.first if tail is not None else ())}
    if others:
        return f"{and_more(sorted(map(str, others)))} may hold other records on {link.id.source} than were mirrored"
    unread = {tp for tp, mark in marks.items() if mark.leader_epoch is not None and tp not in seen.seen}
    unread |= {*batches.silent, *(tail.unread if tail is not None else ())}
    if unread:
        return f"{and_more(sorted(map(str, unread)))} can't be compared with {link.id.source} now"
    return None
