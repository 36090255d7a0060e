"""`drkit translate`: translates source positions to the target, each with its certainty.

The answer comes from the store; both clusters are asked whether it still holds. A position that can't be checked isn't
called exact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from drkit.cli.wiring.context import Invocation, LinksOption, verb
from drkit.cli.wiring.selection import refuse_empty
from drkit.failover.snapshot.selection import TopicSelector, parse_topic_selector
from drkit.mapping import Translator
from drkit.mapping.translate import doubted_if_set_back
from drkit.model.clock import now
from drkit.model.errors import ConfigError, DrkitError, Refused
from drkit.model.link_state import Direction, Problem
from drkit.model.offsets import Certainty, Translation
from drkit.model.topology import Link, TopicPartition
from drkit.model.wording import and_more

if TYPE_CHECKING:
    from drkit.kafka.admin.clusters import Clusters
    from drkit.observe.cluster_log_ends import ClusterLogEnds

_NAMED = 20  # so many known names are listed in an error


@dataclass(frozen=True, slots=True)
class TranslatedPosition:
    """A position on a link's source, its group (None: of no group), and its translation."""

    link: Link
    group: str | None
    tp: TopicPartition
    translation: Translation
    captured_at: datetime | None


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("translate")(translate)


@verb()
def translate(
    run: Invocation,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="G", help="Captured positions of this group (repeatable)."),
    ] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Captured positions of all groups.")] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="T", help="The source's topic, as t or t:0,1 (repeatable)."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", metavar="P", min=0, max=2**31 - 1, help="The partition, where --topic names none."),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option(
            "--offset", metavar="N", min=0, max=2**63 - 1, help="The source offset (the next record to read)."
        ),
    ] = None,
    link: LinksOption = None,
) -> None:
    """Translate a source position to the target: a group's captured positions, or any offset."""
    refuse_empty("--group", group or ())
    selectors = _selectors(topic or (), partition)
    if group or all_groups:
        if group and all_groups:
            raise ConfigError("--all-groups and --group exclude each other", remedy="Give one of them")
        if offset is not None:
            raise ConfigError(
                "--offset doesn't go with groups: their captured positions are translated",
                remedy="Leave out --offset, or give only --topic, --partition and --offset",
            )
        positions = _of_groups(run, _links(run, link), frozenset(group or ()), selectors)
    else:
        tps, wanted = _offset_arguments(selectors, offset)
        positions = _of_offset(run, _links(run, link), tps, wanted)
    run.writer.emit(
        {"positions": [_document(position) for position in positions]}, lambda console: _print(console, positions)
    )


def _selectors(topics: Sequence[str], partition: int | None) -> list[TopicSelector]:
    selectors = [parse_topic_selector(text) for text in topics]
    if partition is None:
        return selectors
    if not selectors:
        raise ConfigError("--partition is given without --topic", remedy="Name the topic: --topic T --partition P")
    twice = next((selector for selector in selectors if selector.partitions), None)
    if twice is not None:
        raise ConfigError(
            f"--partition {partition} and --topic {twice} both name partitions", remedy="Use one way or the other"
        )
    return [TopicSelector(selector.topic, (partition,)) for selector in selectors]


def _offset_arguments(selectors: Sequence[TopicSelector], offset: int | None) -> tuple[list[TopicPartition], int]:
    if not selectors and offset is None:
        raise ConfigError(
            "nothing to translate is given",
            remedy="Give --group G (or --all-groups), or --topic T --partition P --offset N",
        )
    if not selectors:
        raise ConfigError("--offset is given without --topic", remedy="Give --topic T --partition P --offset N")
    if offset is None:
        raise ConfigError(
            "--topic is given without --offset", remedy="Add --offset N, or --group G for a group's positions there"
        )
    bare = next((selector for selector in selectors if not selector.partitions), None)
    if bare is not None:
        raise ConfigError(
            f"no partition of {bare.topic} is named", remedy=f"Add --partition P, or write --topic {bare.topic}:0,1"
        )
    named = {TopicPartition(each.topic, number) for each in selectors for number in each.partitions}
    return sorted(named), offset


def _links(run: Invocation, selected: Sequence[str] | None) -> list[Link]:
    """The links named, and the way back of those that are reversed: data flows there now."""
    found = []
    for link in run.links_like(selected):
        found.append(link)
        control = run.store().link_control(link.id)
        if control is not None and control.direction is Direction.REVERSED:
            found.append(link.reversed())
    return found


def _translator(run: Invocation, link: Link, tps: Collection[TopicPartition]) -> tuple[Translator, Sequence[Problem]]:
    """Of a link, and its problems; heeds what both clusters show now of these partitions (of the source): where their
    logs begin and end, whether their topics are those that were mirrored, and what no mirror that runs would tell.

    Raises:
        Refused: a recovery of the store was interrupted.
    """
    from drkit.kafka.admin.clusters import observing
    from drkit.lag.problems_now import LinkRecord, made_anew
    from drkit.observe.cluster_log_ends import ClusterLogEnds, logs_by_source, logs_seen, silent_by_source
    from drkit.observe.copy_comparison import compared_problems, link_age, provable_ends
    from drkit.state_topic.guard import check_recovered
    from drkit.store.workers import mirror_at_work

    store, at = run.store(), now()
    check_recovered(store, link)
    control, running = store.link_control(link.id), mirror_at_work(store, link.id) is not None
    flowing = control is None or control.direction.serves_source
    topics = store.topic_states(link.id)
    problems = store.problems(link.id)
    translator = Translator(store, link.id)
    there = {TopicPartition(link.target_topic(tp.topic), tp.partition) for tp in tps}
    with observing(run.config.clusters, None) as clusters:
        target = ClusterLogEnds(reason="it was not asked")

        def look() -> dict[TopicPartition, tuple[int, int]]:
            nonlocal target
            target = _look(clusters, link.id.target, there)
            return logs_by_source(link, target.start, target.end)

        translator.observe_target(look)
        translator.heed_silence(target.reason, silent_by_source(link, target.silent))
        marks = {tp: mark for tp in tps if (mark := translator.watermark(tp)) is not None}
        source = _look(clusters, link.id.source, set(marks)) if flowing else ClusterLogEnds(reason="it is not asked")
        record = LinkRecord(link, control, marks, topics, running=running, flowing=flowing)
        age = link_age(clusters, store, record)
        seen = compared_problems(clusters, store, record, source, target, problems, translator, at, age)
        # where clients work on the target by now, a topic that they recreated is no fault; but no row is of it
        anew = [] if flowing else made_anew(clusters, store, record, logs_seen(source, target), problems, at)
    translator.heed_problems([*seen.problems, *anew], seen.unsure)
    translator.settle(provable_ends(record, source, seen), seen.own_ends)
    return translator, seen.problems


def _look(clusters: Clusters, alias: str, tps: Collection[TopicPartition]) -> ClusterLogEnds:
    """What a cluster shows of some partitions, by its own names; a topic that drkit may not see isn't known."""
    from drkit.observe.cluster_log_ends import ClusterLogEnds

    try:
        admin = clusters.admin(alias, may_be_gone=True)
        cluster_id = admin.cluster_id()
        topics = admin.topics({tp.topic for tp in tps}, denied=set())
        silent: dict[TopicPartition, str] = {}
        starts = admin.start_offsets(tps, silent=silent)
        ends = admin.log_ends(starts, partial=True)  # partitions without an answer were waited for once
    except DrkitError as error:
        return ClusterLogEnds(reason=str(error))
    ids = {info.name: info.topic_id for info in topics.values()}
    return ClusterLogEnds(starts, ends, ids=ids, silent=silent, cluster_id=cluster_id)


def _of_groups(
    run: Invocation, links: Sequence[Link], wanted: frozenset[str], selectors: Sequence[TopicSelector]
) -> list[TranslatedPosition]:
    """The captured positions of the groups named (none: all of them).

    Raises:
        Refused: no position of a group named is captured, or none on the topics named.
    """
    from drkit.store.link_notes import behind_captured

    store = run.store()
    known: set[str] = set()
    seen: set[str] = set()
    positions = []
    for link in links:
        held = store.group_positions(link.id)
        translator, problems = _translator(run, link, {captured.tp for captured in held})
        behind = behind_captured(store, link.id, held, problems)
        for captured in held:
            known.add(captured.group)
            if wanted and captured.group not in wanted:
                continue
            if selectors and not any(selector.covers(captured.tp) for selector in selectors):
                continue
            seen.add(captured.group)
            answer = translator.translate(captured.tp, captured.offset)
            answer = doubted_if_set_back(answer, link.id.source, behind.get((captured.group, captured.tp)))
            positions.append(TranslatedPosition(link, captured.group, captured.tp, answer, captured.captured_at))
    missing = sorted(wanted - known)
    if missing:
        raise Refused(
            f"no position of group {', '.join(map(repr, missing))} is captured on {_names(link.id for link in links)}",
            meaning="The group never committed there, isn't covered by the link's `groups`, or no mirror has run since",
            remedy=f"Known groups: {_names(sorted(known))}",
        )
    elsewhere = sorted(wanted - seen)
    if elsewhere:
        raise Refused(
            f"group {', '.join(map(repr, elsewhere))} has no captured position on {_names(selectors)}",
            remedy="Leave out --topic to see where it has some",
        )
    return positions


def _of_offset(
    run: Invocation, links: Sequence[Link], tps: Sequence[TopicPartition], offset: int
) -> list[TranslatedPosition]:
    """The same source offset on each partition, on every link that carries its topic.

    Raises:
        Refused: no link carries a topic.
    """
    store = run.store()
    positions = []
    translators: dict[Link, Translator] = {}  # of all its partitions: the store is compared with its copy once
    for tp in tps:
        carrying = [link for link in links if link.covers_topic(tp.topic)]
        if not carrying:
            raise Refused(
                f"no topic {tp.topic!r} is mirrored on {_names(link.id for link in links)}",
                meaning="The name is the source's; the link's `topics` and `exclude_topics` decide",
                remedy=f"Topics recorded: {_names(sorted({t for link in links for t in store.topic_states(link.id)}))}",
            )
        for link in carrying:
            if link not in translators:
                translators[link], _ = _translator(run, link, [each for each in tps if link.covers_topic(each.topic)])
            positions.append(TranslatedPosition(link, None, tp, translators[link].translate(tp, offset), None))
    return positions


def _names(names: Iterable[object]) -> str:
    listed = [str(name) for name in names]
    return and_more(listed, shown=_NAMED) if listed else "none"


def _document(position: TranslatedPosition) -> dict[str, Any]:
    answer = position.translation
    return {
        "link": str(position.link.id),
        "group": position.group,
        "topic": position.tp.topic,
        "target_topic": position.link.target_topic(position.tp.topic),
        "partition": position.tp.partition,
        "source_offset": answer.source_offset,
        "target_offset": answer.target_offset,
        "translation": answer.certainty.value,
        "reason": answer.reason,
        "reread": answer.reread,
        "skipped": answer.skipped,
        "captured_at": position.captured_at,
    }


def _print(console: Console, positions: Sequence[TranslatedPosition]) -> None:
    if not positions:
        console.print("No position of any group is captured yet.")
        return
    several = len({position.link.id for position in positions}) > 1
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (*(("link",) if several else ()), "group", "partition"):
        table.add_column(name)
    table.add_column("source offset", justify="right")
    table.add_column("target offset", justify="right")
    table.add_column("translation")
    for position in positions:
        answer = position.translation
        exact = answer.certainty is Certainty.EXACT
        table.add_row(
            *((str(position.link.id),) if several else ()),
            position.group or "-",
            str(position.tp),
            str(answer.source_offset),
            "?" if answer.target_offset is None else str(answer.target_offset),
            Text("exact", "green") if exact else Text(f"{answer.certainty.value}: {answer.reason}", "yellow"),
        )
    console.print(table)
