"""A schedule that was stopped over one of its times knows it from the store: on this machine, or on another one."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from drkit.drill.results.archive import Drills, last_began
from drkit.drill.schedule import MissedPolicy
from drkit.drill.schedule.scheduler import DrillSchedule
from drkit.drill.schedule.times import zone
from drkit.model.clock import now
from drkit.model.runs import RunSummary
from drkit.observe.drill_history import DRILL
from drkit.store import Store
from tests.support.drills.kept_drills import experiment_text
from tests.support.wait import wait_until


class RememberedSchedule(DrillSchedule):
    """Plays nothing; each of its drills is remembered by the store, as a drill that was played is."""

    def __init__(self, file: Path, cron: str, title: str, store: Store, folder: Path) -> None:
        self.title, self.store, self.said = title, store, list[str]()
        super().__init__(
            file,
            cron,
            zone("UTC"),
            [],
            self.said.append,
            missed=MissedPolicy.ONCE,
            last_began=lambda title: last_began(title, Drills(folder), store.runs()),
        )

    def _run_once(self) -> None:
        remember(self.store, self.title, now())


def remember(store: Store, title: str, at: datetime) -> None:
    store.put_run(RunSummary(f"drill-{uuid.uuid4().hex}", DRILL, "passed", at, at, title))


@pytest.fixture
def schedule(store: Store, tmp_path: Path) -> Callable[[str], RememberedSchedule]:
    """A schedule of an experiment that others of this store don't have; each has an empty folder of drills."""
    title = f"Restarted {uuid.uuid4().hex}"
    file = tmp_path / "restarted.yaml"
    file.write_text(experiment_text(title))
    return lambda cron: RememberedSchedule(file, cron, title, store, tmp_path / uuid.uuid4().hex)


def test_what_a_stopped_schedule_missed_is_made_up_for_once(
    schedule: Callable[[str], RememberedSchedule], store: Store
) -> None:
    passed = (now() - timedelta(days=2)).replace(second=0, microsecond=0)
    yearly = f"{passed.minute} {passed.hour} {passed.day} {passed.month} *"
    first = schedule(yearly)
    remember(store, first.title, passed - timedelta(days=40))

    def played() -> int:
        return sum((each.kind, each.detail) == (DRILL, first.title) for each in store.runs())

    first.start(at_once=False)
    try:
        wait_until(lambda: played() == 2, what="the drill that is owed")
    finally:
        first.stop()
    assert any(line.startswith("made up for, it passed while the scheduler was stopped") for line in first.said)

    restarted = schedule(yearly)  # on another machine: it has no kept drill
    restarted.start(at_once=False)
    restarted.stop()
    assert restarted.said == []
    assert (played(), restarted.result().left_out) == (2, [])
