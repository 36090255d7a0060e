"""One soak: starts the load, plays faults, stops the load, waits for the mirror, judges every record and position."""

from __future__ import annotations

import json
import platform
import random
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from chaos.soak import judge
from chaos.soak.clusters import Content, SoakError, read
from chaos.soak.faults import Fault, schedule
from chaos.soak.load import COMPACTED, KINDS, Kind, Load
from chaos.soak.world import World
from drkit.mapping import Translator
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import Store, open_store

REPORT_FILE = "report.json"

_CATCH_UP_SECONDS = 300.0
_STOP_SECONDS = 60.0
_WARM_RECORDS = 200
_CLI_POSITIONS = 2

Say = Callable[[str], None]


class Soak:
    """Plays and judges; `report` is always complete at the end.

    Args:
        world: the environment.
        seed: of the faults, their order and times, and the load's contents.
        faults: how many.
        scale: factor of the load's rates.
        gap: the most seconds between two faults.
        minutes: begin no fault after so many.
        every: translate the position of every `every`-th record.
        say: called with a readable line about each step.
    """

    def __init__(
        self, world: World, *, seed: int, faults: int, scale: float, gap: float, minutes: float, every: int, say: Say
    ) -> None:
        self._world = world
        self._gap = gap
        self._seconds = 60.0 * minutes
        self._every = every
        self._say = say
        self._faults = schedule(seed, faults)
        self._chance = random.Random(f"moments {seed}")  # noqa: S311 - repeatable, not secret
        self._load = Load(world.source.bootstrap, world.topic, seed, scale)
        self._read_to: dict[Path, int] = {}
        self.report: dict[str, Any] = {
            "seed": seed,
            "asked": faults,
            "store": "cassandra" if world.cassandra else "sqlite",
            "offsets": world.offsets,
            "workers": len(world.mirrors.workers),
            "machine": f"{psutil.cpu_count()} CPUs, {psutil.virtual_memory().total >> 30} GiB, {platform.system()}",
            "begun": _now(),
            "faults": [],
            "halted": [],
            "problems": [],
            "status_faults": ["drkit status was never asked"],
            "ended_by_themselves": world.mirrors.ended,
            "partitions": [],
            "verdict": "broken",
        }

    def run(self) -> dict[str, Any]:
        """Play and judge; the report's `verdict`: `clean`, `failed` (by the mirror), `broken` (by the soak), or
        `cut short` (what was played was clean, but fewer faults than asked for)."""
        try:
            self._load.start()
            self._warm_up()
            begun = time.monotonic()
            for number, fault in enumerate(self._faults, 1):
                if time.monotonic() - begun > self._seconds:
                    self._say("the time is up: no further fault")
                    break
                self._play(number, fault)
                if self.report["halted"]:
                    self._say("a partition is halted: no further fault")
                    break
            self._world.wait_started()
            self._say("the load ends")
            self._load.end()
            self.report["written"] = dict(self._load.written)
            self._catch_up()
            self._judge()
        except Exception as error:  # noqa: BLE001 - the report says it, with all that was seen before
            self.report["broken"] = "".join(traceback.format_exception(error))
        finally:
            self._load.ending.set()
            self._stop()
            self.report["ended"] = _now()
            self._conclude()
            (self._world.folder / REPORT_FILE).write_text(json.dumps(self.report, indent=1, default=str))
        return self.report

    # -- playing -----------------------------------------------------------------------------------

    def _warm_up(self) -> None:
        """Wait until records have arrived on the target, and every topic exists."""
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while True:
            moved = sum(int((worker.last() or {}).get("records", 0)) for worker in self._world.mirrors.workers)
            if moved >= _WARM_RECORDS and self._world.target.has(self._world.topics):
                return
            if time.monotonic() > deadline:
                raise SoakError("the mirror doesn't start mirroring")
            time.sleep(0.2)

    def _play(self, number: int, fault: Fault) -> None:
        time.sleep(self._chance.uniform(0.2, self._gap))
        logs = {worker.log: worker.log.stat().st_size for worker in self._world.mirrors.workers}
        begun, at = time.monotonic(), _now()
        # its own random generator: the choices of one fault don't affect later ones
        did = fault(self._world, random.Random(self._chance.random()))  # noqa: S311 - as above
        seconds = round(time.monotonic() - begun, 1)
        said = {f"worker {w.number}": w.said(logs[w.log]) for w in self._world.mirrors.workers}
        entry = {"number": number, "fault": fault.__name__, "at": at, "seconds": seconds, "did": did, "said": said}
        self.report["faults"].append(entry)
        self._say(f"{number:3} {at[11:19]} {fault.__name__}: {did}")
        self._look_for_halts()

    def _look_for_halts(self) -> None:
        """The problems of halted partitions that the workers reported since the last call."""
        for worker in self._world.mirrors.workers:
            with worker.events.open("rb") as file:
                file.seek(self._read_to.get(worker.events, 0))
                lines = file.read().splitlines(keepends=True)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._read_to[worker.events] = self._read_to.get(worker.events, 0) + len(line)
                if b'"problem"' in line:
                    self._note_problem(line)

    def _note_problem(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:  # a worker was killed while it wrote
            return
        if event.get("type") == "problem":
            self.report["problems"].append(event)
            self._say(f"    problem: {event['kind']} {event['topic']}:{event['partition']}: {event['reason']}")
            if event["halted"]:
                self.report["halted"].append(event)

    def _catch_up(self) -> None:
        """Wait until `drkit status` says that everything is mirrored and well. After the timeout the records are judged
        as they are, and what it says is a finding."""
        expected = [(self._world.topic[kind.name], number) for kind in KINDS for number in range(kind.partitions)]
        begun = time.monotonic()
        while True:
            self._look_for_halts()
            status = self._world.status()
            faults = judge.status_faults(status, expected, self._world.topic[COMPACTED.name])
            if not faults or time.monotonic() - begun > _CATCH_UP_SECONDS:
                break
            time.sleep(1.0)
        self.report["catch_up_seconds"] = round(time.monotonic() - begun, 1)
        self.report["status"], self.report["status_faults"] = status, faults
        self._say(f"status after {self.report['catch_up_seconds']} s: {'; '.join(faults) or 'caught up'}")

    # -- judging -----------------------------------------------------------------------------------

    def _judge(self) -> None:
        world = self._world
        store = open_store(world.store_url)
        try:
            for kind in KINDS:
                for number in range(kind.partitions):
                    topic = world.topic[kind.name]
                    source = read(world.source.bootstrap, topic, number, committed=True)
                    target = read(world.target.bootstrap, topic, number, committed=False)
                    self.report["partitions"].append(self._judged(store, kind, number, source, target))
        finally:
            store.close()

    def _judged(self, store: Store, kind: Kind, number: int, source: Content, target: Content) -> dict[str, Any]:
        link, tp = LinkId("primary", "dr"), TopicPartition(self._world.topic[kind.name], number)
        if kind is COMPACTED:
            verdict, came_from = judge.compare_compacted(source.records, target.records, self._load.journal)
        else:
            verdict = judge.compare(source.records, target.records)
            came_from = [record.offset for record in source.records]
        theirs = [record.offset for record in target.records]
        rows = store.mappings(link, tp, _epoch(store, link, tp))
        preserved = bool(rows) and all(row.delta == 0 for row in rows)
        if not (verdict.missing or verdict.extra or verdict.disorder):
            translator = Translator(store, link)

            def translate(offset: int) -> tuple[str, int | None]:
                answer = translator.translate(tp, offset)
                return answer.certainty.value, answer.target_offset

            commits = judge.positions([record.offset for record in source.records], source.end, self._every)
            judge.check_mapping(verdict, came_from, theirs, target.end, commits, translate)
            if preserved or (self._world.offsets == "preserve" and kind is not COMPACTED):
                judge.check_preserved(verdict, came_from, theirs)
            if number == 0:
                self._ask_command(verdict, tp, commits, translate)
        said = {
            "topic": tp.topic,
            "kind": kind.name,
            "partition": number,
            **asdict(verdict),
            "clean": verdict.clean,
            "mapping_rows": len(rows),
            "offsets_preserved": preserved,
            "source_end": source.end,
            "target_end": target.end,
        }
        self._say(
            f"{kind.name}:{number} {verdict.records} records, {verdict.missing} missing, {verdict.extra} extra, "
            f"{verdict.wrong} of {verdict.positions} positions wrong, {len(rows)} rows"
            + ("" if verdict.clean else f": {verdict.examples}")
        )
        return said

    def _ask_command(
        self, verdict: judge.Verdict, tp: TopicPartition, commits: list[int], translate: judge.Translate
    ) -> None:
        """Check that `drkit translate` gives the library's answers."""
        for commit in random.Random(tp.topic).sample(commits, k=min(_CLI_POSITIONS, len(commits))):  # noqa: S311 - as above
            answer = self._world.translate(tp.topic, tp.partition, commit)
            if (answer["translation"], answer["target_offset"]) != translate(commit):
                verdict.wrong += 1
                verdict.note(f"wrong: drkit translate says {answer} for {commit}, the library {translate(commit)}")

    # -- the end -----------------------------------------------------------------------------------

    def _stop(self) -> None:
        codes = self._world.mirrors.stop(_STOP_SECONDS)
        self.report["exit_codes"] = codes
        if any(code is None for code in codes):
            self._say(f"a worker did not end within {_STOP_SECONDS:g} s of SIGTERM")

    def _conclude(self) -> None:
        report = self.report
        if "broken" in report:
            report["verdict"] = "broken"
            return
        totals = ("records", "missing", "extra", "disorder", "positions", "wrong", "moved")
        report["totals"] = {name: sum(each[name] for each in report["partitions"]) for name in totals}
        report["verdict"] = verdict(report, self._world.topic[COMPACTED.name])


def verdict(report: dict[str, Any], compacted: str) -> str:
    """The verdict of a complete report. `compacted`: the compacted topic."""
    judged = report["partitions"]
    ended = any(code != 0 for code in report["exit_codes"]) or report["ended_by_themselves"]
    complete = all(each["clean"] and each["records"] for each in judged) and len(judged) == _partitions()
    wrong = [problem for problem in report["problems"] if not judge.harmless(problem, compacted)]
    if not complete or wrong or ended or report["status_faults"]:
        return "failed"
    return "clean" if len(report["faults"]) >= report["asked"] else "cut short"


def _epoch(store: Store, link: LinkId, tp: TopicPartition) -> int:
    watermark = store.watermarks(link).get(tp)
    return 0 if watermark is None else watermark.epoch


def _partitions() -> int:
    return sum(kind.partitions for kind in KINDS)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
