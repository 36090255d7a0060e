"""`drkit status`: links, lag, delta, freshness of group positions, the recovery point now."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from drkit.cli.output import OutputMode
from drkit.cli.wiring.context import (
    Invocation,
    LinksOption,
    TimeoutOption,
    bounded,
    verb,
)
from drkit.cli.wiring.selection import TopicsOption, topic_choices
from drkit.model.clock import iso, now
from drkit.model.errors import ConfigError, Unreachable, error_body
from drkit.model.wording import and_more

if TYPE_CHECKING:
    from rich.console import RenderableType

    from drkit.model.audit.audit_result import TopicChoice
    from drkit.observe.link_status import LinkStatus
    from drkit.state_topic.store_age import ComparedStores


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("status")(status)


@verb()
def status(
    run: Invocation,
    link: LinksOption = None,
    topic: TopicsOption = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="G", help="A group, or a pattern of whole names (billing.*); repeat it."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every partition, position and problem, not just the worst.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep updating until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.2, callback=bounded, help="Seconds between looks with --watch.")
    ] = 2.0,
    timeout: TimeoutOption = None,
) -> None:
    """Show links, lag in records and seconds, delta, group positions, the recovery point now.

    Shows the worst partitions and groups first, and only those if there are many; --output json has all. --topic and
    --group limit the rows, but the state and the recovery point are of whole links.
    """
    run.writer.lines = watch
    chosen = _Selection(topic_choices(topic), tuple(group or ()))
    if watch:
        from drkit.state_topic.store_age import ComparedStores

        compared = ComparedStores(timeout)
        _watch(run, lambda: chosen.of(_read_statuses(run, link, timeout, compared)), interval, every=every)
        return
    statuses = chosen.of(_read_statuses(run, link, timeout))
    from drkit.cli.views.status_view import render_drills, render_statuses
    from drkit.observe.drill_history import known_drills
    from drkit.observe.link_status import status_document

    drills = known_drills(run.config, run.store())
    run.writer.emit(
        status_document(statuses, drills),
        lambda console: console.print(render_statuses(statuses, every=every), *render_drills(drills)),
    )


@dataclass(frozen=True, slots=True)
class _Selection:
    """What `--topic` and `--group` name; nothing: all."""

    topics: Sequence[TopicChoice]
    groups: Sequence[str]

    def of(self, statuses: list[LinkStatus]) -> list[LinkStatus]:
        """The statuses with only what is named.

        Raises:
            ConfigError: a name or pattern means nothing that is there.
        """
        if self.topics or self.groups:
            self._check(statuses)
        return [self._of(each) for each in statuses] if self.topics or self.groups else statuses

    def _of(self, status: LinkStatus) -> LinkStatus:
        groups = [each for each in status.groups if self._group(each.group) and self._topic(each.topic, each.partition)]
        read = {(each.topic, each.partition) for each in groups}
        return replace(
            status,
            groups=tuple(groups),
            partitions=tuple(
                each
                for each in status.partitions
                if self._topic(each.topic, each.partition) and (not self.groups or (each.topic, each.partition) in read)
            ),
        )

    def _topic(self, topic: str, partition: int) -> bool:
        return not self.topics or any(choice.covers(topic, partition) for choice in self.topics)

    def _group(self, name: str) -> bool:
        return not self.groups or any(_matches(pattern, name) for pattern in self.groups)

    def _check(self, statuses: Sequence[LinkStatus]) -> None:
        topics = sorted({each.topic for status in statuses for each in status.partitions})
        groups = sorted({each.group for status in statuses for each in status.groups})
        for choice in self.topics:
            if not any(choice.names(topic) for topic in topics):
                raise _no_match("--topic", choice.text, "topic", topics)
        for pattern in self.groups:
            if not any(_matches(pattern, name) for name in groups):
                raise _no_match("--group", pattern, "group", groups)


def _matches(pattern: str, name: str) -> bool:
    if pattern == name:
        return True
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error:
        return False


def _no_match(option: str, given: str, what: str, known: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"{option} {given!r}: no {what} of these links has this name or matches this pattern",
        remedy=f"Known {what}s: {and_more(known)}" if known else f"No {what} is known of these links yet",
    )


def _read_statuses(
    run: Invocation, link: Sequence[str] | None, timeout: float | None, compared: ComparedStores | None = None
) -> list[LinkStatus]:
    from drkit.kafka.admin.clusters import observing

    links = run.links_like(link)
    with observing(run.config.clusters, timeout) as clusters:
        # while the store is opened and the rest is loaded: a dead one is waited for meanwhile
        clusters.connect_soon({alias for each in links for alias in (each.id.source, each.id.target)})
        from drkit.cli.views import status_view  # noqa: F401 - loaded while the clusters are waited for
        from drkit.observe import drill_history  # noqa: F401 - as above
        from drkit.observe.status import link_statuses
        from drkit.state_topic.store_age import ComparedStores

        compared = compared or ComparedStores(timeout)
        return link_statuses(run.config, run.store(), links, clusters=clusters, compared=compared)


def _watch(run: Invocation, look: Callable[[], list[LinkStatus]], interval: float, *, every: bool) -> None:
    """Show it again and again, also while the store doesn't answer: a live picture at a terminal, else one after the
    other; one JSON object a line for programs.
    """
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from drkit.cli.output import Printable
    from drkit.cli.views.status_view import render_drills, render_statuses
    from drkit.observe.drill_history import known_drills
    from drkit.observe.link_status import status_document

    def picture() -> RenderableType:
        try:
            statuses, drills = look(), known_drills(run.config, run.store())
            shown: RenderableType = Group(render_statuses(statuses, every=every), *render_drills(drills))
        except Unreachable as error:
            shown = Text(f"{error}\ndrkit tries again every {interval:g} s", "yellow")
        return Group(Text(iso(now()) or "", "dim"), shown)

    console = run.writer.console
    try:
        if run.writer.mode is OutputMode.JSON:
            while True:
                try:
                    run.writer.line(status_document(look(), known_drills(run.config, run.store())))
                except Unreachable as error:
                    run.writer.line({"error": error_body(error)})
                time.sleep(interval)
        if not console.is_terminal:
            while not run.writer.unread:
                console.print(picture())
                time.sleep(interval)
            return
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(Printable(picture()), refresh=True)
                time.sleep(interval)
    except KeyboardInterrupt:
        return
