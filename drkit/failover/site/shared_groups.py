"""Groups on more than one link: their consumers may start on the target once all these links have committed.

A consumer that starts earlier would find no position on the other links' topics, begin there at its
`auto.offset.reset`, and prevent those links' commits, because Kafka accepts offsets from outside only while a group has
no members.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import PATHS, Kind, Run, State
from drkit.failover.plan.site_plan import SitePlan
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.run.runner import Gate
from drkit.model.clock import POLL_SECONDS
from drkit.model.errors import PartlyDone
from drkit.model.topology import LinkId
from drkit.model.wording import and_more

_PATH = [State.PLANNED, *(step.reaches for step in PATHS[Kind.FAILOVER])]
COMMITTED = frozenset(_PATH[_PATH.index(State.COMMITTED) :])
"""The states of a run whose groups are committed."""


class SharedGroups:
    """The progress of a run's links, and which ones wait for others before switching clients. Threads may share it.

    Args:
        site: the site run's id, for messages.
        plan: its plan, until a link has translated its positions.
        elsewhere: links of the plan that this run doesn't move.
    """

    def __init__(self, site: str, plan: SitePlan, elsewhere: Iterable[LinkId] = ()) -> None:
        self._site = site
        left = set(elsewhere)
        self._groups = {each.link: _groups(each.placed) for each in plan.plans if each.link not in left}
        self._states: dict[LinkId, State] = {}
        self._done: dict[LinkId, frozenset[str]] = {}
        self._ended: set[LinkId] = set()
        self._changed = threading.Condition()

    def gate(self, link: LinkId, lease: RunLease) -> Gate:
        """A function that a link's runner calls before each stage."""

        def ask(stage: str, run: Run, positions: tuple[PlannedPosition, ...]) -> None:
            self._note(link, run.state, positions)
            if stage == "switch":
                self._wait_for_others(link, lease)

        return ask

    def ended(self, link: LinkId, state: State) -> None:
        """Note that a link's run is over, or has stopped."""
        with self._changed:
            self._ended.add(link)
        self._note(link, state, ())

    def committed(self, link: LinkId, groups: Iterable[str]) -> None:
        """Note that a link has committed these groups, while others of it remain."""
        with self._changed:
            self._done[link] = self._done.get(link, frozenset()) | frozenset(groups)
            self._changed.notify_all()

    def _note(self, link: LinkId, state: State, positions: tuple[PlannedPosition, ...]) -> None:
        with self._changed:
            self._states[link] = state
            if positions:
                self._groups[link] = _groups(p for p in positions if p.target_offset is not None)
            self._changed.notify_all()

    def _wait_for_others(self, link: LinkId, lease: RunLease) -> None:
        with self._changed:
            for other in [each for each in self._groups if each != link]:
                while self._shared(link, other) and not self._committed(other) and other not in self._ended:
                    lease.check()
                    self._changed.wait(POLL_SECONDS)
                shared = self._shared(link, other)
                if shared and not self._committed(other):
                    raise PartlyDone(
                        f"{other} has not committed {and_more(shared)}, which {link} places, too",
                        meaning=f"Consumers of these groups would find no position on {other}'s topics, so clients of "
                        f"{link} are not switched yet",
                        remedy=f"Once the cause is removed: drkit resume {self._site} continues both",
                    )

    def _shared(self, link: LinkId, other: LinkId) -> list[str]:
        return sorted((self._groups[link] & self._groups[other]) - self._done.get(other, frozenset()))

    def _committed(self, link: LinkId) -> bool:
        return self._states.get(link) in COMMITTED


def _groups(positions: Iterable[PlannedPosition]) -> frozenset[str]:
    return frozenset(position.group for position in positions)
