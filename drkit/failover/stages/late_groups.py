"""Finds groups that first committed on the cluster that groups left after their positions had been chosen.

They are not in its fence, and this run doesn't move them: each of their positions is added to the run's without a
place, with what moves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drkit.failover.positions.positions import NoReset, PlannedPosition
from drkit.failover.snapshot.selection import Selection
from drkit.failover.stages.stage import StageContext
from drkit.lag.groups_left_behind import groups_left_behind, mover_of
from drkit.model.errors import DrkitError
from drkit.model.offsets import GroupPosition
from drkit.model.wording import and_more, counted
from drkit.store.link_notes import check_source_cluster


def find_late_groups(context: StageContext, selection: Selection) -> tuple[tuple[PlannedPosition, ...], str]:
    """The positions that groups of the selection have only on the cluster that groups left, none of which is the run's,
    and a sentence ("": there are none, or that cluster is gone)."""
    link, estate = context.link, context.estate
    source = link.id.source
    if context.facts.fenced is None or estate.reach(source).gone:
        return (), ""
    seen = [(each.group, each.topic, each.partition) for each in estate.store.group_positions(link.id)]
    seen += [(each.group, each.topic, each.partition) for each in context.positions]
    try:
        check_source_cluster(estate.store, link.id, estate.admin(source, may_be_gone=True).cluster_id())
        found = groups_left_behind(estate, link, seen)
        late = [each for each in found.positions if selection.covers(each.group, each.tp)]
        positions = tuple(_unplaced(context, late)) if late else ()
    except DrkitError as error:
        return (), f"; whether more groups have committed on {source} isn't known: {error.what}"
    said = f"; whether more groups have committed on {source} isn't known: {found.unread}" if found.unread else ""
    if late:
        groups = sorted({each.group for each in late})
        have, are = ("has", "isn't") if len(groups) == 1 else ("have", "aren't")
        said += f"; {counted(len(groups), 'group')} {have} first committed on {source} since, and {are} moved: "
        said += and_more(groups)
    return positions, said


def _unplaced(context: StageContext, late: Sequence[GroupPosition]) -> Iterator[PlannedPosition]:
    link = context.link
    there = context.estate.admin(link.id.target).topics({link.target_topic(each.topic) for each in late}, denied=set())
    for each in late:
        topic = link.target_topic(each.topic)
        why = f"first committed on {link.id.source} after the groups' positions had been chosen"
        if topic not in there or each.partition >= there[topic].partitions:
            none = f"{why}; {link.id.target} has no such partition"
            yield PlannedPosition.unplaced(each, topic, none, no_reset=NoReset.NOT_ON_TARGET)
            continue
        if not link.inverse:
            why += f": {mover_of(link, [each.group])} moves it"
        yield PlannedPosition.unplaced(each, topic, why)
