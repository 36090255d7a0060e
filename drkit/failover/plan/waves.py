"""Which groups move in which wave, which link may begin, and what happens in between.

A group is committed as a whole, on all links that have it, in one wave: Kafka accepts offsets from outside only while
a group has no members, so consumers may start once all of their group is committed.

A wave is over once each of its links has committed the wave's groups, or has failed. Then its commands are called, its
pause is waited for, and the next one begins; or, if it failed and should stop the run, the links with groups in later
waves stop, resumable. Finished waves are journaled, and a resumed run doesn't repeat them.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from drkit.config.schema.config import WaveConfig
from drkit.directory.command import ended, run_bounded
from drkit.failover.context.lease import RunLease
from drkit.failover.plan.failover_plan import FailoverPlan
from drkit.failover.positions.positions import PlannedPosition
from drkit.model.clock import POLL_SECONDS, Deadline
from drkit.model.errors import DrkitError, PartlyDone
from drkit.model.topology import LinkId
from drkit.model.wording import and_more

REST = "the rest"
"""The last wave: groups that no configured wave matches."""

WantedGroups = Mapping[str, Sequence[PlannedPosition]]
"""Positions to commit, by group."""


def at_once(wanted: WantedGroups) -> Iterator[WantedGroups]:
    """All groups in one portion: a run without waves."""
    yield wanted


@dataclass(frozen=True, slots=True)
class Wave:
    """A wave as it was configured when the plan was made; see `drkit.config.schema.config`."""

    name: str
    links: tuple[str, ...] = (".*",)
    groups: tuple[str, ...] = (".*",)
    topics: tuple[str, ...] = (".*",)
    after: tuple[tuple[str, ...], ...] = ()
    pause_seconds: float = 0.0
    timeout_seconds: float = 60.0
    stops: bool = True
    max_loss_records: int | None = None
    max_loss_seconds: float | None = None

    @classmethod
    def of(cls, configured: WaveConfig) -> Wave:
        """A wave from the configuration."""
        values = configured.model_dump(exclude={"on_failure"})
        return cls(**values, stops=configured.on_failure == "stop")

    def takes(self, link: LinkId, group: str, topics: Iterable[str]) -> bool:
        """Whether a group that reads these topics of the link's source matches, unless an earlier wave has it."""
        reads = any(_any(self.topics, topic) for topic in topics)
        return reads and _any(self.links, str(link)) and _any(self.groups, group)


def waves_of(configured: Sequence[WaveConfig]) -> tuple[Wave, ...]:
    """The waves in order, the rest last; none: all groups move as they can."""
    return (*(Wave.of(each) for each in configured), Wave(REST)) if configured else ()


class WaveAssignment:
    """The wave of each group, by number.

    Args:
        waves: in order.
        plans: of all links. A group on several links belongs to the last of the waves that they give it.
    """

    def __init__(self, waves: Sequence[Wave], plans: Iterable[FailoverPlan]) -> None:
        self._waves = waves
        self._of: dict[str, int] = {}
        self._groups: dict[LinkId, frozenset[str]] = {}
        for plan in plans:
            topics: dict[str, set[str]] = {}
            for position in plan.placed:
                topics.setdefault(position.group, set()).add(position.topic)
            self._groups[plan.link] = frozenset(topics)
            for group, read in topics.items():
                self._of[group] = max(self._of.get(group, 0), self._by_pattern(plan.link, group, read))

    def wave(self, link: LinkId, group: str, topics: Iterable[str]) -> int:
        """The wave of a group; one that was not planned is matched by the patterns alone."""
        found = self._of.get(group)
        return self._by_pattern(link, group, topics) if found is None else found

    def groups(self, link: LinkId) -> dict[int, list[str]]:
        """The groups that a link's plan places, by wave, sorted."""
        found: dict[int, list[str]] = {}
        for group in sorted(self._groups[link]):
            found.setdefault(self._of[group], []).append(group)
        return dict(sorted(found.items()))

    def first(self, link: LinkId) -> int:
        """The wave in which a link's run begins: that of its first groups, or the last one."""
        return min(self.groups(link), default=len(self._waves) - 1)

    def _by_pattern(self, link: LinkId, group: str, topics: Iterable[str]) -> int:
        read = list(topics)
        taking = (number for number, wave in enumerate(self._waves) if wave.takes(link, group, read))
        return next(taking, len(self._waves) - 1)


def _any(patterns: Iterable[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


Journaled = Callable[[Wave, str | None, float], None]
"""Journals that a wave is over: (wave, why it failed or None, seconds)."""


class Waves:
    """The order in which the links of a run commit their groups. The links' threads and the conductor's share it.

    Args:
        site: the site run's id, for messages.
        waves: in order, the rest last.
        assignment: the groups of each wave.
        links: the links that the run executes.
        over: names of waves that an earlier attempt journaled as over.
        environment: variables for the commands, besides this process's own environment.
        committed: called with the groups that a link has committed.
    """

    def __init__(
        self,
        site: str,
        waves: Sequence[Wave],
        assignment: WaveAssignment,
        links: Sequence[LinkId],
        *,
        over: AbstractSet[str],
        environment: Mapping[str, str],
        committed: Callable[[LinkId, AbstractSet[str]], None],
    ) -> None:
        self._site = site
        self._waves = waves
        self._assignment = assignment
        self._over = over
        self._environment = environment
        self._committed = committed
        self._members = {link: set(assignment.groups(link)) or {assignment.first(link)} for link in links}
        self._done: dict[LinkId, set[int]] = {link: set() for link in links}
        self._ended: set[LinkId] = set()
        self._open = -1
        self._stopped: str | None = None
        self._changed = threading.Condition()

    # -- what links ask -------------------------------------------------------------------------------

    def begin(self, link: LinkId, lease: RunLease) -> None:
        """Wait until a link's run may begin, with the wave of its first groups.

        Raises:
            PartlyDone: an earlier wave failed, and stops the run.
        """
        self._wait(self._assignment.first(link), lease)

    def in_order(self, link: LinkId, lease: RunLease) -> Callable[[WantedGroups], Iterator[WantedGroups]]:
        """The order of a link's commits: the groups of each wave, when it begins."""

        def portions(wanted: WantedGroups) -> Iterator[WantedGroups]:
            by_wave: dict[int, dict[str, Sequence[PlannedPosition]]] = {}
            for group, positions in wanted.items():
                number = self._assignment.wave(link, group, {position.topic for position in positions})
                by_wave.setdefault(number, {})[group] = positions
            for number in sorted(by_wave.keys() | self._members[link]):
                self._wait(number, lease)
                yield by_wave.get(number, {})
                self._committed(link, by_wave.get(number, {}).keys())
                with self._changed:
                    self._done[link].add(number)
                    self._changed.notify_all()

        return portions

    def has_committed(self, link: LinkId) -> None:
        """Note that a link has committed all its groups."""
        with self._changed:
            self._done[link] |= self._members[link]
            self._changed.notify_all()

    def ended(self, link: LinkId) -> None:
        """Note that a link's run is over, or has stopped."""
        with self._changed:
            self._ended.add(link)
            self._changed.notify_all()

    # -- what the conductor does ----------------------------------------------------------------------

    def conduct(self, journaled: Journaled) -> None:
        """Run one wave after the other, until all are over, one stops the run, or no link is left."""
        try:
            self._conduct(journaled)
        except BaseException as error:
            with self._changed:  # whatever the error, nobody may wait for a wave that doesn't come
                self._stopped = f"the waves can't continue: {error}"
                self._changed.notify_all()
            raise

    def _conduct(self, journaled: Journaled) -> None:
        for number, wave in enumerate(self._waves):
            links = [link for link, waves in self._members.items() if number in waves]
            with self._changed:
                self._open = number
                self._changed.notify_all()
                began = time.monotonic()
                while not all(number in self._done[link] or link in self._ended for link in links):
                    self._changed.wait(POLL_SECONDS)
                failed = [str(link) for link in links if number not in self._done[link]]
            if wave.name in self._over:
                continue
            why = f"{and_more(failed)} did not commit" if failed else self._after(wave) if links else None
            last = number == len(self._waves) - 1
            if links:
                journaled(wave, why, time.monotonic() - began)
            if why is not None and wave.stops and not last:
                with self._changed:
                    self._stopped = f"wave {wave.name} failed: {why}"
                    self._changed.notify_all()
                return
            if links and not last:
                self._pause(wave.pause_seconds)

    def _after(self, wave: Wave) -> str | None:
        """Call a wave's commands; returns why one failed, or None."""
        for command in wave.after:
            name = f"the command {command[0]} after wave {wave.name}"
            told = {**self._environment, "DRKIT_WAVE": wave.name}
            try:
                done = run_bounded(command, told, "", Deadline.after(wave.timeout_seconds))
            except DrkitError as error:
                return f"{name}: {error.what}"
            if done.code != 0:
                return ended(name, "do its work", done).what
        return None

    def _pause(self, seconds: float) -> None:
        """Wait, while any link is waiting, too."""
        until = time.monotonic() + seconds
        with self._changed:
            while (left := until - time.monotonic()) > 0 and len(self._ended) < len(self._members):
                self._changed.wait(min(left, POLL_SECONDS))

    def _wait(self, number: int, lease: RunLease) -> None:
        with self._changed:
            while self._open < number and self._stopped is None:
                lease.check()
                self._changed.wait(POLL_SECONDS)
            if self._open < number:
                raise PartlyDone(
                    f"wave {self._waves[number].name} was not begun: {self._stopped}",
                    meaning="Earlier moves stay in effect; the groups of later waves were not moved",
                    remedy=f"Remove the cause; then drkit resume {self._site} continues with the waves",
                )
