"""One run: plays a plan, and judges at every quiet point and at its end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema

from chaos.adversary import oracle
from chaos.adversary.actions import PROVENANCE, Actions
from chaos.adversary.plan import Plan
from chaos.adversary.world import LINK, Cluster, World
from chaos.soak.clusters import SoakError
from drkit.lab import Lab

_REST_SECONDS = 1.2
_SINCE_ACTION_SECONDS = 2.0
_SETTLE_SECONDS = 45.0
_PATIENCE_SECONDS = 20.0
_POLL_SECONDS = 0.4
_DEVIATED, _INCOMPLETE = 5, 8
_SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "status.schema.json"

Say = Callable[[str], None]


class Run:
    """See the module docstring. `findings`: in order; the run ends at the first quiet point with one.

    Args:
        lab: the lab.
        folder: only for this run.
        plan: the plan.
        plant: a defect to plant in the workers.
        known: findings that match this pattern don't count.
        say: called with a readable line about each step.
    """

    def __init__(self, lab: Lab, folder: Path, plan: Plan, *, plant: str, known: str, say: Say) -> None:
        folder.mkdir(parents=True)
        self._source, self._target = Cluster(lab, "primary"), Cluster(lab, "dr")
        self._plan = plan
        self._known = re.compile(known) if known else None
        self._say = say
        self._world = World(self._source, self._target, folder, plan, plant)
        self._actions = Actions(self._world, self._settle, say)
        self._before: dict[int, list[bytes]] = {}
        self._now: dict[int, list[bytes]] = {}
        self._told: set[bytes] = set()
        self._excused: set[bytes] = set()
        self._told_missing: set[bytes] = set()
        self._deviations: list[str | None] = []
        self._given_up: set[bytes] = set()
        self._spotless = not plan.alters
        """Whether nothing was removed from the target yet, and there was no problem."""
        self._schema = json.loads(_SCHEMA.read_text())
        self._acted_at = 0.0
        self._at_rest = False
        """Whether everything was caught up or halted when it was judged last, so that an audit may miss nothing."""
        self.findings: list[str] = []

    def play(self) -> list[str]:
        """Play the plan; returns the findings.

        Raises:
            SoakError: the run itself could not continue.
        """
        try:
            for number, action in zip(self._plan.numbers, self._plan.actions, strict=True):
                begun = time.monotonic()
                self._actions.play(action)
                self._acted_at = time.monotonic()
                self._say(f"  {number:3} {action} [{self._acted_at - begun:.1f} s]")
                if action.kind == "quiet" and self._judge():
                    return self.findings
            if self._world.over:
                self.findings += self._world.ended
                return self.findings
            self._world.start()
            self._judge()
            if self._plan.audits and self._at_rest:  # also of what is found: an audit has to find it, too
                self._audit()
            if not self.findings and self._world.worker is not None:
                self._world.stop(self._world.worker)
                self.findings += self._world.ended
        finally:
            self._world.close()
            self._source.close()
            self._target.close()
        return self.findings

    # -- quiet points ------------------------------------------------------------------------------

    def _settle(self, seconds: float = 0.0) -> dict[str, Any] | None:
        """Wait until every partition is caught up or halted with a problem, and nothing changes; returns the status.

        `seconds`: wait at least so long.
        """
        if seconds:
            self._acted_at = time.monotonic() + seconds - _SINCE_ACTION_SECONDS
        deadline = time.monotonic() + _SETTLE_SECONDS
        since, last = time.monotonic(), None
        status = None
        while time.monotonic() < deadline:
            self._world.look_after()
            status = self._world.status()
            state = None if status is None else self._state(status)
            if state is None or state != last:
                since, last = time.monotonic(), state
            elif time.monotonic() - max(since + _REST_SECONDS, self._acted_at + _SINCE_ACTION_SECONDS) > 0:
                return status
            time.sleep(_POLL_SECONDS)
        return status

    def _state(self, status: dict[str, Any]) -> object:
        """The state that must stay the same to be quiet; None while something is in progress."""
        if _silent(status):
            return None
        marks = {p["partition"]: p for p in status["partitions"] if p["topic"] == self._world.topic}
        found: list[object] = []
        if self._source.partitions(self._world.topic) != self._world.partitions:
            return None  # one has no leader yet
        for number in range(self._world.partitions):
            problems = _naming(status, self._world.topic, number)
            mark = marks.get(number)
            if not any(problem["halted"] for problem in problems):
                end = self._source.ends(self._world.topic, number, committed=self._plan.committed)[1]
                if mark is None or mark["mirrored_through"] is None or mark["source_end"] != end:
                    return None
                purged = sum(_length(problem, mark["source_start"]) for problem in problems)
                if mark["lag_records"] != purged or (mark["mirrored_through"] != end and not purged):
                    return None
            found.append((mark and (mark["mirrored_through"], mark["target_end"]), [p["kind"] for p in problems]))
        return found

    def _judge(self) -> bool:
        """Judge the current state; returns whether there are lasting findings."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            status = self._settle()
            found = [what for what in self._found(status) if not (self._known and self._known.search(what))]
            if not found:
                self._before = self._now
                self._actions.touched.clear()
                self._acknowledge(status)
            if not found or time.monotonic() > deadline:
                break
            self._say(f"      not yet: {found[0]}")
            time.sleep(1.0)
        for what in found:
            self._say(f"      FOUND {what}")
        if found and status is not None:
            self._say(f"      state {status['state']}; problems {[_short(p) for p in status['problems']]}")
        self.findings += found + self._world.ended
        self._world.ended.clear()
        return bool(self.findings)

    def _audit(self) -> None:
        """An audit may report clean only if it is; and must, if nothing is wrong and nothing ever was."""
        begun = time.monotonic()
        why = next(filter(None, self._deviations), None)
        for way in (), ("--from-digests",):
            out = self._world.folder / f"audit{''.join(way)}"
            code, said = self._world.ask("audit", "--topic", self._world.topic, "--out", str(out), *way)
            name = " ".join(["audit", *way])
            if code == 0 and why is not None:
                self.findings.append(f"{name} says clean, but {why}")
            elif code == _DEVIATED and why is None and self._spotless:
                self.findings.append(f"{name} says deviated, but nothing is wrong: {said['totals']}")
            elif code == _INCOMPLETE and why is None and self._spotless:
                self.findings.append(f"{name} reaches no verdict, but nothing was ever wrong: {said['incomplete']}")
            elif code not in {0, _DEVIATED, _INCOMPLETE}:
                self.findings.append(f"{name} fails with {code}: {said.get('error')}")
            self._say(f"      {name}: {said.get('verdict')} [{time.monotonic() - begun:.1f} s]")

    def _acknowledge(self, status: dict[str, Any] | None) -> None:
        """Clear the problems of partitions that continue, like an operator who has read them."""
        problems = [] if status is None else status["problems"]
        if problems and not any(problem["halted"] for problem in problems):
            self._excused |= self._told
            self._given_up |= self._told_missing
            for kind in sorted({problem["kind"] for problem in problems}):
                self._world.ask("link", "acknowledge", LINK, kind, "--topic", self._world.topic)

    def _found(self, status: dict[str, Any] | None) -> list[str]:
        self._at_rest = False
        if status is None:
            return ["drkit status fails"]
        found = []
        error = next(iter(jsonschema.Draft202012Validator(self._schema).iter_errors({"links": [status]})), None)
        if error is not None:
            found.append(f"status breaks its schema: {error.message}")
        if status["state"] == "mirroring" and any(
            problem["kind"] not in oracle.NO_ALARM for problem in status["problems"]
        ):
            found.append("the link is reported as mirroring with problems on record")
        if silent := _silent(status):
            return [*found, f"status says that {silent} does not answer"]  # and shows its last known offsets
        self._at_rest = self._state(status) is not None
        if not self._at_rest:
            there = self._source.partitions(self._world.topic)
            if there != self._world.partitions:
                raise SoakError(f"the source shows {there} of {self._world.partitions} partitions")
            found.append(f"a partition neither catches up nor has a problem: {_moving(status)}")
        self._now, self._told, self._told_missing, self._deviations = {}, set(), set(), []
        told = any(problem["kind"] not in oracle.NO_ALARM for problem in status["problems"])
        self._spotless &= not (told or self._actions.touched or self._actions.history)
        for number in range(self._world.partitions):
            found += self._of_partition(status, number)
        return found

    def _of_partition(self, status: dict[str, Any], number: int) -> list[str]:
        world = self._world
        topic = world.topic
        if self._target.partitions(topic) <= number:
            named = _naming(status, topic, number)
            return [] if named else [f"partition {number} isn't on the target and no problem says so"]
        source = self._source.read(topic, number, committed=self._plan.committed)
        target = self._target.read(topic, number, committed=False, ignore=PROVENANCE)
        self._now[number] = [record.digest for record in target.records]
        begun = self._actions.history.get(number, 0)
        # there again: what happens to them next is another loss
        self._given_up.difference_update(record.digest for record in target.records if record.offset >= begun)
        seen = oracle.Seen(
            number,
            source,
            target,
            next((p for p in status["partitions"] if (p["topic"], p["partition"]) == (topic, number)), None),
            _naming(status, topic, number),
            lambda offset: world.translate(number, offset),
            self._actions.history.get(number, 0),
            None if number in self._actions.touched else self._before.get(number),
            frozenset(self._given_up),
            frozenset(self._excused),
        )
        self._deviations.append(oracle.deviation(seen, world.journal))
        world.journal.arrived.update(record.digest for record in target.records if record.offset >= begun)
        self._told |= oracle.to_excuse(seen)
        self._told_missing |= oracle.to_give_up(seen, world.journal)
        return oracle.findings(seen, world.journal)


def _silent(status: dict[str, Any]) -> str:
    """The clusters that status could not reach; "": none. On a busy machine one may not answer in time."""
    sides = ("source", "target")
    return " and ".join(status[side] for side in sides if not status[f"{side}_reachable"])


def _naming(status: dict[str, Any], topic: str, partition: int) -> list[dict[str, Any]]:
    return [p for p in status["problems"] if p["topic"] == topic and p["partition"] in {None, partition}]


def _length(problem: dict[str, Any], source_start: int) -> int:
    """The number of source offsets that a problem names as missing on the target."""
    if problem["kind"] not in oracle.NAME_MISSING:
        return 0
    return max(0, int(problem["unsure_until"]) - max(int(problem["unsure_from"]), source_start))


def _short(problem: dict[str, Any]) -> str:
    return (
        f"{problem['kind']}:{problem['partition']}{' (halted)' if problem['halted'] else ''} {problem['reason'][:120]}"
    )


def _moving(status: dict[str, Any]) -> str:
    said = [
        f"{p['partition']}: through {p['mirrored_through']} of {p['source_end']}, lag {p['lag_records']}"
        for p in status["partitions"]
    ]
    return f"state {status['state']}, {'; '.join(said) or 'no partitions'}"
