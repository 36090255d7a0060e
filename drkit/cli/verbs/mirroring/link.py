"""`drkit link pause|resume|acknowledge|recover|trim`: pause a link or a topic, resume, accept a recreated topic;
acknowledge problems; recover epochs; remove filler that is visible again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from drkit.cli.output import NOTHING_CHANGED
from drkit.cli.wiring.context import Invocation, verb
from drkit.model.errors import ConfigError, Refused
from drkit.model.link_state import SOURCE_GAP, LinkControl
from drkit.model.runs import CLUSTER_ID
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted

if TYPE_CHECKING:
    from drkit.mirror.control import Accepted

link_app = typer.Typer(no_args_is_help=True, help="Pause or resume a link or a topic; acknowledge problems.")

_MAY_BE = "The link, or a part of its topics and problems, may be changed already"

LinkArgument = Annotated[str, typer.Argument(help="The link, as source->target (quote it).", metavar="L")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="One topic, by its name on the source.", metavar="T")]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(link_app, name="link")


@link_app.command("pause")
@verb(unfinished=NOTHING_CHANGED)
def pause_link(
    run: Invocation,
    link: LinkArgument,
    topic: TopicOption = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for `drkit status`.")] = "",
) -> None:
    """Pause a link, or one topic of it: the mirror follows within a second, and after a restart too."""
    from drkit.mirror.control import pause

    chosen = _link(run, link)
    _check_restored(run, chosen)
    run.begins_to_change(_MAY_BE)
    control = pause(run.store(), chosen, topic, reason=reason)
    if topic is not None and topic not in run.store().topic_states(chosen.id):
        run.writer.log.print(
            f"[yellow]![/] {chosen.id} has mirrored no topic {escape(topic)} so far: paused from its creation on",
            soft_wrap=True,
        )
    run.writer.emit(_document(control), lambda console: _print(console, control, topic, "is held"))


@link_app.command("resume")
@verb(unfinished=NOTHING_CHANGED)
def resume_link(
    run: Invocation,
    link: LinkArgument,
    topic: TopicOption = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept-recreated",
            help="With --topic: accept the recreated topic as a new one, mirrored from its start. With --cluster-id: "
            "accept the target, and all topics that aren't there as they were mirrored.",
        ),
    ] = False,
    cluster_id: Annotated[
        str | None,
        typer.Option(
            CLUSTER_ID, help="With --accept-recreated: the id of the target, which may be a new cluster.", metavar="ID"
        ),
    ] = None,
) -> None:
    """Resume a link, or one topic of it; partitions halted by a problem are retried."""
    from drkit.kafka.admin.cluster_admin import ClusterAdmin
    from drkit.mirror.control import accept_recreated, accept_target, resume_link

    chosen = _link(run, link)
    _check_restored(run, chosen)
    accepted: list[Accepted] = []
    if (accept and (topic is None) == (cluster_id is None)) or (cluster_id is not None and not accept):
        raise ConfigError(
            f"--accept-recreated needs either --topic or {CLUSTER_ID}",
            remedy="Name the topic that was recreated; or accept the cluster "
            f"{chosen.id.target} by its id, and all topics that aren't there as they were mirrored",
        )
    run.begins_to_change(_MAY_BE)
    if accept:
        clusters = run.config.clusters
        with (
            ClusterAdmin(chosen.id.source, clusters[chosen.id.source]) as source,
            ClusterAdmin(chosen.id.target, clusters[chosen.id.target]) as target,
        ):
            if cluster_id is not None:
                accepted = accept_target(run.store(), chosen, cluster_id, target=target)
            elif topic is not None:
                accepted = [accept_recreated(run.store(), chosen, topic, source=source, target=target)]
    control, cleared = resume_link(run.store(), chosen, topic)
    found = [_accepted(each) for each in accepted]
    document = _document(control) | {
        "cleared_problems": cleared,
        "accepted": found[0] if found and topic is not None else None,
        "accepted_topics": found,
    }
    stay = [p for p in run.store().problems(chosen.id) if p.halted and topic in {None, p.topic}]

    def human(console: Console) -> None:
        _print(console, control, topic, "continues")
        if cleared:
            console.print(f"{counted(cleared, 'problem')} retried; what persists is told again")
        for problem in stay:
            console.print(
                f"{escape(problem.place)} stays halted ({problem.kind}): {escape(problem.remedy)}", soft_wrap=True
            )
        if cluster_id is not None:
            count = counted(len(accepted), "topic")
            console.print(f"{chosen.id.target} is cluster {escape(cluster_id)}; {count} accepted as new")
        for each in accepted:
            _print_accepted(console, chosen.id, each)

    run.writer.emit(document, human)


@link_app.command("acknowledge")
@verb(unfinished=NOTHING_CHANGED)
def acknowledge_problem(
    run: Invocation,
    link: LinkArgument,
    kind: Annotated[str, typer.Argument(help="The kind of problem, as `drkit status` shows it.", metavar="PROBLEM")],
    topic: TopicOption = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="With settings_held or rows_unproven: every topic that has it.")
    ] = False,
    compacted: Annotated[
        bool,
        typer.Option(
            "--compacted",
            help="With source_gap: the topic was compacted once, so every gap that its log has now is a hole.",
        ),
    ] = False,
) -> None:
    """Acknowledge a problem that was read and is left as it is: records that it names as missing count as given up.

    A kind that gives up records which the source still holds, deletes a topic, or has records removed on the target
    needs --topic (settings_held and rows_unproven also take --all-topics).
    """
    from drkit.mirror.control import OF_ALL_TOPICS, acknowledge
    from drkit.mirror.runtime.events import problem_document

    if compacted and kind != SOURCE_GAP:
        raise ConfigError(f"--compacted says nothing about {kind}", remedy=f"Use it with {SOURCE_GAP}, or leave it out")
    if all_topics and (topic is not None or kind not in OF_ALL_TOPICS):
        raise ConfigError(
            f"--all-topics says nothing about {kind if topic is None else f'the one topic {topic}'}",
            remedy=f"Use it with {' or '.join(OF_ALL_TOPICS)} and without --topic, or leave it out",
        )
    chosen = _link(run, link)
    _check_restored(run, chosen)
    run.begins_to_change(_MAY_BE)
    control, done = acknowledge(run.store(), chosen, kind, topic, all_topics=all_topics, compacted=compacted)
    document = _document(control) | {"acknowledged": [problem_document(problem) for problem in done]}

    def human(console: Console) -> None:
        console.print(f"{counted(len(done), 'problem')} acknowledged:")
        for problem in done:
            console.print(f"  {escape(problem.reason)}", soft_wrap=True)

    run.writer.emit(document, human)


@link_app.command("recover")
@verb(unfinished=NOTHING_CHANGED)
def recover_link(
    run: Invocation,
    link: LinkArgument,
) -> None:
    """After the store was lost and rebuilt: raise the link's epoch above those in its directories."""
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.stages.directory_update import recover_epoch

    chosen = run.links(link)[0]
    _check_restored(run, chosen)
    with ClusterContext(run.config, run.store()) as estate:
        run.begins_to_change(_MAY_BE)
        control, changed = recover_epoch(estate, chosen.id)
    what = f"continues above epoch {control.version}" if changed else "is above its directories already"
    run.writer.emit(_document(control), lambda console: _print(console, control, None, what))


@link_app.command("trim")
@verb(unfinished=NOTHING_CHANGED)
def trim_link(
    run: Invocation,
    link: LinkArgument,
) -> None:
    """After a failover or failback: remove filler (empty records of drkit's own) that a broker shows again."""
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.stages.remove_filler import remove_filler
    from drkit.state_topic.guard import check_recovered

    chosen = _link(run, link)
    check_recovered(run.store(), chosen)
    control = run.store().link_control(chosen.id)
    if control is None or control.direction.serves_source:
        raise Refused(
            f"link {chosen.id} is neither sealed nor reversed",
            meaning="Its mirror removes filler itself, and a failover removes what a mirror left",
            remedy="Start `drkit mirror`",
        )
    with ClusterContext(run.config, run.store()) as estate:
        run.begins_to_change("Filler may be removed in part")
        found = remove_filler(estate, chosen.id, check=lambda: None)
    for place, error in found.refused.items():
        raise Refused(f"{place}: {error.what}", meaning=error.meaning, remedy=error.remedy) from error
    trimmed = [str(place) for place in found.removed]
    document = _document(control) | {"trimmed": trimmed}
    what = f"filler is removed from {and_more(trimmed)}" if trimmed else "no filler is visible"
    run.writer.emit(document, lambda console: console.print(f"{chosen.id.target}: {what}"))


def _check_restored(run: Invocation, link: Link) -> None:
    """Refuse a store that has only a part of the link; of one that was restored from a backup, look first whether the
    link was failed over since."""
    from drkit.kafka.admin.cluster_admin import ClusterAdmin
    from drkit.state_topic.guard import RECOVERY, RESTORED, check_recovered, check_restored

    store, target = run.store(), run.config.clusters[link.id.target]
    check_recovered(store, link)
    if not link.inverse and RESTORED in store.notes(link.id, RECOVERY):
        with ClusterAdmin(link.id.target, target) as admin:
            check_restored(link, store, admin, target)


def _link(run: Invocation, name: str) -> Link:
    """The configured link of that name, or the way back of one."""
    try:
        wanted = LinkId.parse(name)
    except ValueError as error:
        raise ConfigError(str(error), remedy="Write it as source->target, in quotes") from None
    for link in run.links(None):
        if link.id == wanted.reversed() and all(each.link().id != wanted for each in run.config.links):
            return link.reversed()
    return run.links(name)[0]


def _document(control: LinkControl) -> dict[str, Any]:
    return {
        "link": str(control.link),
        "direction": control.direction.value,
        "paused_topics": sorted(control.paused_topics),
        "reason": control.reason or None,
        "version": control.version,
        "changed_at": control.changed_at,
    }


def _accepted(accepted: Accepted) -> dict[str, Any]:
    state = accepted.topic
    return {
        "topic": state.topic,
        "epoch": state.epoch,
        "source_topic_id": state.source_topic_id,
        "offsets_that_stay": accepted.stay,
        "already": accepted.already,
    }


def _print_accepted(console: Console, link: LinkId, accepted: Accepted) -> None:
    state = accepted.topic
    before = "was accepted before, and no mirror has begun it yet: it " if accepted.already else ""
    console.print(f"{state.topic} {before}is mirrored from its start, as epoch {state.epoch}")
    if accepted.stay:
        console.print(
            f"[yellow]![/] {escape(state.target_topic)} on {link.target} keeps the {counted(accepted.stay, 'offset')} "
            "that it holds; records that the source still has are there a second time behind them. For one copy only, "
            f"delete it on {link.target} and give this command again",
            soft_wrap=True,
        )


def _print(console: Console, control: LinkControl, topic: str | None, what: str) -> None:
    console.print(f"{control.link if topic is None else f'{topic} of {control.link}'} {what}")
