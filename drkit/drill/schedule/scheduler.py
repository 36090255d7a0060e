"""Runs scheduled drills: APScheduler decides when; each drill is a separate process.

One runs at a time (`max_instances=1`); the package has the rule for missed times. None begins in a blackout.
SIGTERM and Ctrl-C stop the scheduler; a running drill rolls back first.

Nothing of a schedule is stored: it follows from the command line, and what it missed while it was stopped from when the
experiment was last played, which the folder of drills and the store remember. A stored copy of the job would be a
second truth beside them, on one machine only.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any
from zoneinfo import ZoneInfo

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from drkit.drill.environment.child_processes import environment
from drkit.drill.experiment.reader import load_experiment
from drkit.drill.judge.result import DrillResult, ScheduledRun, ScheduleResult, TimeLeftOut
from drkit.drill.schedule import MissedPolicy
from drkit.drill.schedule.times import Blackouts, next_times, trigger
from drkit.model.clock import now
from drkit.model.process import SignalEvent, handled

SHOWN = 5
"""How many of the next times are shown."""
JOB = "drill"


class DrillSchedule:
    """An experiment that runs by a cron expression.

    Args:
        file: the experiment; read again at each run.
        expression: five fields, as cron reads them.
        timezone: the time zone of the expression.
        options: further options of `drkit drill run`.
        say: called with a readable line.
        blackouts: when no drill begins.
        missed: the policy for missed times.
        last_began: when the newest drill of an experiment began, by its title; None: none is known. Times since then
            passed while the scheduler was stopped.

    Raises:
        ConfigError: the experiment or the expression is wrong.
    """

    def __init__(
        self,
        file: Path,
        expression: str,
        timezone: ZoneInfo,
        options: Sequence[str],
        say: Callable[[str], None],
        *,
        blackouts: Blackouts | None = None,
        missed: MissedPolicy = MissedPolicy.GRACE,
        last_began: Callable[[str], datetime | None] = lambda _: None,
    ) -> None:
        self._title = load_experiment(file).experiment.title
        self._file = file.resolve()
        self._expression = expression
        self._timezone = timezone
        self._options = list(options)
        self._say = say
        self._blackouts = blackouts or Blackouts()
        self._missed = missed
        self._last_began = last_began
        self._trigger = trigger(expression, timezone)
        self._ran: list[ScheduledRun] = []
        self._left_out: list[TimeLeftOut] = []
        self._passed: list[datetime] = []
        self._stopped = SignalEvent()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.scheduler = BackgroundScheduler(
            timezone=timezone,
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": missed.late_seconds},
        )

    def next_runs(self) -> list[datetime]:
        """The next times, without those in blackouts."""
        return self._blackouts.outside(self._trigger, now().astimezone(self._timezone), SHOWN)

    def start(self, *, at_once: bool) -> None:
        """Start the scheduler; `at_once`: the first drill runs now."""
        passed, made_up = self._passed_while_away()
        if passed is not None and not made_up:
            self._leave_out(passed, "it passed while the scheduler was stopped, and perhaps others after it")
        elif passed is not None and not at_once:
            self._say(f"made up for, it passed while the scheduler was stopped: {self._shown(passed)}")
        self.scheduler.add_listener(self._not_run, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR)
        first = {"next_run_time": now()} if at_once or made_up else {}
        self.scheduler.add_job(self._run_due, self._trigger, id=JOB, name=self._file.name, **first)
        self.scheduler.start()

    def run(self, *, at_once: bool = False) -> None:
        """Run until SIGTERM or Ctrl-C. Call it in the main thread."""
        with handled(self._ask, signal.SIGTERM, signal.SIGINT):
            self.start(at_once=at_once)
            self._say_next()
            while not self._stopped.wait(0.5):
                pass
            self.stop()

    @property
    def stopped(self) -> threading.Event:
        """Set it to end `run`: no further drill begins, and a running one rolls back first."""
        return self._stopped

    def observe(self, blackouts: Blackouts) -> None:
        """Use other blackouts from now on. Any thread may call it."""
        self._blackouts = blackouts
        self._say("calendars reloaded; each drill reads its experiment and configuration again")
        self._say_next()

    def stop(self) -> None:
        """Begin no further drill; end a running one and wait for it."""
        self._stopped.set()
        with self._lock:
            if self._process is not None:
                self._say("a drill is running: it rolls back first")
                self._process.terminate()
        self.scheduler.shutdown(wait=True)

    def result(self) -> ScheduleResult:
        """The runs, the times that were left out, and the next times."""
        return ScheduleResult(
            file=str(self._file),
            cron=self._expression,
            timezone=self._timezone.key,
            missed=self._missed.value,
            next_runs=self.next_runs(),
            ran=list(self._ran),
            left_out=list(self._left_out),
        )

    def _passed_while_away(self) -> tuple[datetime | None, bool]:
        """A time that passed since the newest drill of this experiment, and whether it is made up for, by the policy.

        What is made up for goes first: one drill does for all of them.
        """
        last, here = self._last_began(self._title), now().astimezone(self._timezone)
        if last is None:
            return None, False
        last, late = last.astimezone(self._timezone), self._missed.late_seconds
        if self._missed is not MissedPolicy.SKIP:
            since = last if late is None else max(last, here - timedelta(seconds=late))
            owed = passed_since(self._trigger, since, here)
            if owed is not None:
                return owed, True
        return passed_since(self._trigger, last, here), False

    def _run_due(self) -> None:
        """Play the drill that is due, and another one for times that passed meanwhile, if the policy says so."""
        self._run_outside_blackouts(now())
        while not self._stopped.is_set():
            with self._lock:
                passed, self._passed = self._passed, []
            late = time_to_make_up(self._missed, passed, now())
            for at in passed if late is None else ():
                self._leave_out(at, "the drill before it was still running")
            if late is None:
                break
            self._say(f"made up for, the drill before it was still running: {self._shown(late)}")
            self._run_outside_blackouts(now())
        if not self._stopped.is_set():
            self._say_next()

    def _run_outside_blackouts(self, at: datetime) -> None:
        blackout = self._blackouts.covering(at)
        if blackout is None:
            self._run_once()
        else:
            self._leave_out(at, f"blackout until {self._shown(blackout.ends)}: {blackout.reason}")

    def _run_once(self) -> None:
        command = [sys.executable, "-m", "drkit", "drill", "run", str(self._file), "--output", "json", *self._options]
        with self._lock:
            if self._stopped.is_set():
                return
            started = now()
            self._process = subprocess.Popen(
                command,
                env=environment(configured=True),  # it may name the store, which has the lease
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        stdout, _ = self._process.communicate()
        code = self._process.returncode
        with self._lock:
            self._process = None
        done = _scheduled(started, stdout, code)
        self._ran.append(done)
        self._say(f"{done.run or 'a drill without a result'}: {done.verdict or 'no verdict'} (exit code {code})")

    def _not_run(self, event: Any) -> None:
        if event.code == EVENT_JOB_ERROR:
            self._say(f"a drill could not be started: {event.exception}")
        elif event.code == EVENT_JOB_MAX_INSTANCES:
            with self._lock:
                self._passed += event.scheduled_run_times
        else:
            self._leave_out(event.scheduled_run_time, f"more than {self._missed.late_seconds} s late")

    def _leave_out(self, at: datetime, reason: str) -> None:
        self._left_out.append(TimeLeftOut(at=at, reason=reason))
        self._say(f"left out, {reason}: {self._shown(at)}")

    def _say_next(self) -> None:
        coming = self.next_runs()
        self._say(f"next: {self._shown(coming[0])}" if coming else "next: never, all next times lie in blackouts")

    def _shown(self, at: datetime) -> str:
        return f"{at.astimezone(self._timezone):%a %Y-%m-%d %H:%M:%S %Z}"

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._stopped.set()


def _scheduled(started: datetime, stdout: str, code: int) -> ScheduledRun:
    try:
        result = DrillResult.model_validate_json(stdout)
    except ValueError:
        return ScheduledRun(started_at=started, run=None, verdict=None, exit_code=code)
    return ScheduledRun(started_at=started, run=result.run, verdict=result.verdict, exit_code=code)


def time_to_make_up(policy: MissedPolicy, passed: Sequence[datetime], now: datetime) -> datetime | None:
    """The missed time for which a drill is played now; None: there is none."""
    if policy is MissedPolicy.SKIP or not passed:
        return None
    newest = max(passed)
    late = (now - newest).total_seconds()
    return newest if policy.late_seconds is None or late <= policy.late_seconds else None


def passed_since(times: BaseTrigger, last: datetime, now: datetime) -> datetime | None:
    """The first time that passed since then; None: none did."""
    following = next_times(times, last, 1)
    return following[0] if following and following[0] <= now else None
