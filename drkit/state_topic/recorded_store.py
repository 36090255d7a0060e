"""A store that also writes a link's changes to its state topic; see `drkit.state_topic.recorder`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from drkit.config import Config
from drkit.model.clock import now
from drkit.model.errors import DrkitError
from drkit.model.link_state import STATE_TOPIC_FAILED, WHOLE_LINK, LinkControl, Problem, TopicState
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.state_topic.recorder import Recorder
from drkit.state_topic.records import NOT_KEPT, StateKind
from drkit.store.api import Claims, Store

CLOSE_SECONDS = 5.0


class StateRecording:
    """The recorders of one process, created when a link's data change. Shared by threads.

    Args:
        config: clusters and links; only configured links are recorded, not their ways back: their data are on the
            serving cluster.
        store: the store that is recorded.
        mirror: the link that this process mirrors; its recorder compares everything at its start, and records in the
            store when the topic can't be written.
    """

    def __init__(self, config: Config, store: Store, mirror: LinkId | None = None) -> None:
        store = getattr(store, "plain", store)  # one that records already
        self._links: dict[LinkId, Link] = {link.link().id: link.link() for link in config.links}
        self._clusters = config.clusters
        self._plain = store
        self._mirror = mirror
        self._recorders: dict[LinkId, Recorder] = {}
        self.store = cast("Store", _RecordedStore(store, self.recorder))
        """The store that records."""
        if mirror in self._links:
            self._recorder_of(self._links[mirror]).start()

    def recorder(self, link: LinkId) -> Recorder | None:
        """The recorder of a link; None: it isn't recorded."""
        found = self._links.get(link)
        return None if found is None else self._recorder_of(found)

    def close(self) -> None:
        """Write pending changes."""
        for recorder in self._recorders.values():
            recorder.close(CLOSE_SECONDS)

    def _recorder_of(self, link: Link) -> Recorder:
        found = self._recorders.get(link.id)
        if found is None:
            mirrors = link.id == self._mirror
            made = Recorder(
                link,
                self._clusters[link.id.target],
                self._plain,
                whole=mirrors,
                tell=self._teller(link) if mirrors else _nobody,
            )
            found = self._recorders.setdefault(link.id, made)
        return found

    def _teller(self, link: Link) -> Callable[[DrkitError | None], None]:
        def tell(error: DrkitError | None) -> None:
            if error is None:
                self._plain.clear_problems(link.id, WHOLE_LINK, STATE_TOPIC_FAILED)
                return
            why = f"the copy of its state on {link.id.target} can't be written: {error.what}"
            problem = Problem(STATE_TOPIC_FAILED, WHOLE_LINK, None, why, error.remedy, halted=False, since=now())
            self._plain.put_problem(link.id, problem)

        return tell


def _nobody(_: DrkitError | None) -> None:
    """Do nothing: a command has logged it."""


class _RecordedStore:
    """All methods of a store; those that change recorded data note it once the store has saved it."""

    def __init__(self, store: Store, recorder: Callable[[LinkId], Recorder | None]) -> None:
        self.plain = self._store = store
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        """Unrecorded methods are the store's own."""
        return getattr(self._store, name)

    def append_mappings(self, link: LinkId, rows: Sequence[OffsetMapping], claims: Claims | None = None) -> None:
        self._store.append_mappings(link, rows, claims)
        if (recorder := self._recorder(link)) is not None:
            recorder.rows(rows, claims)

    def supersede_mappings(
        self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int, claims: Claims | None = None
    ) -> int:
        count = self._store.supersede_mappings(link, tp, epoch, target_end, claims)
        if count and (recorder := self._recorder(link)) is not None:
            recorder.superseded([tp])
        return count

    def put_watermarks(self, link: LinkId, watermarks: Sequence[Watermark], claims: Claims | None = None) -> None:
        self._store.put_watermarks(link, watermarks, claims)
        if (recorder := self._recorder(link)) is not None:
            recorder.watermarks(watermarks, claims)

    def put_group_positions(self, link: LinkId, positions: Sequence[GroupPosition]) -> None:
        self._store.put_group_positions(link, positions)
        if (recorder := self._recorder(link)) is not None:
            recorder.positions(positions)

    def forget_group_positions(self, link: LinkId, groups: Sequence[str], topic: str | None = None) -> None:
        self._store.forget_group_positions(link, groups, topic)
        self._changed(link, StateKind.POSITIONS)

    def set_link_control(self, control: LinkControl, *, expected_version: int | None) -> bool:
        kept = self._store.set_link_control(control, expected_version=expected_version)
        self._changed(control.link, StateKind.CONTROL)
        return kept

    def put_topic_states(self, link: LinkId, states: Sequence[TopicState]) -> None:
        self._store.put_topic_states(link, states)
        self._changed(link, StateKind.TOPIC)

    def forget_link_data(self, link: LinkId) -> None:
        self._store.forget_link_data(link)
        self._forgotten(link, None)

    def forget_topic(self, link: LinkId, topic: str) -> None:
        self._store.forget_topic(link, topic)
        self._forgotten(link, topic)

    def put_notes(self, link: LinkId, kind: str, notes: Mapping[str, str]) -> None:
        self._store.put_notes(link, kind, notes)
        self._noted(link, kind, notes)

    def forget_notes(self, link: LinkId, kind: str, names: Sequence[str]) -> None:
        self._store.forget_notes(link, kind, names)
        self._noted(link, kind, names)

    def put_problem(self, link: LinkId, problem: Problem) -> None:
        self._store.put_problem(link, problem)
        self._changed(link, StateKind.PROBLEM)

    def clear_problem(self, link: LinkId, problem: Problem) -> None:
        self._store.clear_problem(link, problem)
        self._changed(link, StateKind.PROBLEM)

    def clear_problems(self, link: LinkId, topic: str | None = None, kind: str | None = None) -> int:
        count = self._store.clear_problems(link, topic, kind)
        self._changed(link, StateKind.PROBLEM)
        return count

    def _changed(self, link: LinkId, kind: StateKind, name: str = "") -> None:
        if (recorder := self._recorder(link)) is not None:
            recorder.changed(kind, name)

    def _noted(self, link: LinkId, kind: str, names: Collection[str]) -> None:
        if names and kind not in NOT_KEPT:
            self._changed(link, StateKind.NOTE, kind)

    def _forgotten(self, link: LinkId, topic: str | None) -> None:
        if (recorder := self._recorder(link)) is not None:
            recorder.forgotten(topic)
