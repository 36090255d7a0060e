"""The comparison of the store with its copy on the target, as a status and a translation heed it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from drkit.kafka.admin.clusters import Clusters
from drkit.lag.problems_now import LinkRecord, ProblemsNow, problems_now
from drkit.mapping.store_translator import PartitionRows, Translator
from drkit.model.link_state import (
    ROWS_MISSING,
    Problem,
    TopicState,
)
from drkit.model.offsets import Watermark
from drkit.model.topology import TopicPartition
from drkit.observe.cluster_log_ends import ClusterLogEnds, logs_seen
from drkit.state_topic.store_age import (
    LOOK_SECONDS,
    NOT_OLDER,
    StoreAge,
    older_store_problems,
    positions_age,
)
from drkit.store.api import Store


def link_age(clusters: Clusters, store: Store, record: LinkRecord, seconds: float = LOOK_SECONDS) -> StoreAge:
    """What comparing the store with its copy finds (`positions_age`), within so many seconds."""
    alias = record.link.id.target
    return positions_age(
        record.link,
        store,
        clusters.config_of(alias),
        partial(clusters.admin, alias, may_be_gone=True),
        record.watermarks.values(),
        only_rows=_is_compared_otherwise(record),
        seconds=seconds,
    )


def _is_compared_otherwise(record: LinkRecord) -> bool:
    """Whether an older store is found by others: a mirror compares before it begins; a link that doesn't flow was."""
    return record.running or not record.flowing


def compared_problems(
    clusters: Clusters,
    store: Store,
    record: LinkRecord,
    source: ClusterLogEnds,
    target: ClusterLogEnds,
    problems: Sequence[Problem],
    translator: Translator,
    at: datetime,
    age: StoreAge,
) -> ProblemsNow:
    """`problems_now`, with what comparing the store with its copy found (`positions_age`): with the problem
    `store_older` of each partition that it concerns, and with the rows that the store has lost. The translator heeds
    the comparison, too.

    `problems`: those on record.
    """
    link, marks = record.link, record.watermarks.values()
    rows = PartitionRows(store, age.lost)
    rows.read(link.id, ((tp, mark.epoch) for tp, mark in record.watermarks.items()))
    translator.heed_age(rows, age.rows_in_doubt(link, problems))
    if age.older is None and _is_compared_otherwise(record):
        age = NOT_OLDER
    problems = [*problems, *older_store_problems(link, age, marks, target.end, at)]
    logs = logs_seen(source, target)
    return problems_now(clusters, store, record, logs, problems, at, rows=rows)


def provable_ends(
    record: LinkRecord, source: ClusterLogEnds, problems: ProblemsNow
) -> dict[TopicPartition, int | None]:
    """The source's log ends (None: unknown) of the partitions whose target log and mapping rows show what is on the
    target: only the mirror writes there, they are about these topics, and the store lacks none."""
    if not record.flowing:
        return {}
    return {
        tp: source.end.get(tp)
        for tp, mark in record.watermarks.items()
        if _proven(mark, record.topics.get(tp.topic), source, problems)
    }


def _proven(mark: Watermark, topic: TopicState | None, source: ClusterLogEnds, problems: ProblemsNow) -> bool:
    if topic is None:
        return False
    another = source.ids.get(mark.topic, topic.source_topic_id) != topic.source_topic_id
    lost = any(
        problem.kind in ROWS_MISSING and problem.topic == mark.topic and problem.partition in {None, mark.partition}
        for problem in problems.problems
    )
    return mark.epoch == topic.epoch and not another and not lost
