"""Scheduled drills: APScheduler decides when, each drill is a process of its own.

One at a time (`max_instances=1`); times that passed while a drill ran, or while the machine slept
less than `GRACE_SECONDS`, are made up for once (`coalesce`), others are told and left out. SIGTERM
and Ctrl-C stop the scheduler; a drill that runs then rolls back first.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any
from zoneinfo import ZoneInfo

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from drkit.drill.cron import next_times, trigger
from drkit.drill.environment.child_processes import environment
from drkit.drill.experiment.reader import load_experiment
from drkit.drill.judge.result import DrillResult, ScheduledRun, ScheduleResult
from drkit.model.clock import now

GRACE_SECONDS = 300
SHOWN = 5
"""How many coming times are shown."""
JOB = "drill"


class DrillSchedule:
    """An experiment by a cron expression.

    Args:
        file: the experiment; read anew at each run.
        expression: five fields, as cron reads them.
        timezone: whose clock the expression is on.
        options: further options of `drkit drill run`.
        say: gets a line for people.

    Raises:
        ConfigError: the experiment or the expression is wrong.
    """

    def __init__(
        self, file: Path, expression: str, timezone: ZoneInfo, options: Sequence[str], say: Callable[[str], None]
    ) -> None:
        load_experiment(file)
        self._file = file.resolve()
        self._expression = expression
        self._timezone = timezone
        self._options = list(options)
        self._say = say
        self._trigger = trigger(expression, timezone)
        self._ran: list[ScheduledRun] = []
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.scheduler = BackgroundScheduler(
            timezone=timezone,
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": GRACE_SECONDS},
        )

    def next_runs(self) -> list[datetime]:
        """The coming times."""
        return next_times(self._trigger, now().astimezone(self._timezone), SHOWN)

    def start(self, *, at_once: bool) -> None:
        """Start the clock; `at_once`: the first drill runs now."""
        self.scheduler.add_listener(self._missed, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR)
        first = {"next_run_time": now()} if at_once else {}
        self.scheduler.add_job(self._run_once, self._trigger, id=JOB, name=self._file.name, **first)
        self.scheduler.start()

    def run(self, *, at_once: bool = False) -> None:
        """Run by the clock until SIGTERM or Ctrl-C. Called in the main thread."""
        handlers = {number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            self.start(at_once=at_once)
            self._say(f"next: {self._shown(self.next_runs()[0])}")
            while not self._stopped.wait(0.5):
                pass
            self.stop()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """No further drill; one that runs is told to end and waited for."""
        self._stopped.set()
        with self._lock:
            if self._process is not None:
                self._say("a drill runs: it rolls back first")
                self._process.terminate()
        self.scheduler.shutdown(wait=True)

    def result(self) -> ScheduleResult:
        """What ran, and what would come next."""
        return ScheduleResult(
            file=str(self._file),
            cron=self._expression,
            timezone=self._timezone.key,
            next_runs=self.next_runs(),
            ran=list(self._ran),
        )

    def _run_once(self) -> None:
        command = [sys.executable, "-m", "drkit", "drill", "run", str(self._file), "--output", "json", *self._options]
        with self._lock:
            if self._stopped.is_set():
                return
            started = now()
            self._process = subprocess.Popen(
                command,
                env=environment(),
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
        if not self._stopped.is_set():
            self._say(f"next: {self._shown(self.next_runs()[0])}")

    def _missed(self, event: Any) -> None:
        if event.code == EVENT_JOB_ERROR:
            self._say(f"a drill could not be started: {event.exception}")
        elif event.code == EVENT_JOB_MAX_INSTANCES:
            times = ", ".join(self._shown(at) for at in event.scheduled_run_times)
            self._say(f"left out, the drill before it still runs: {times}")
        else:
            self._say(f"left out, more than {GRACE_SECONDS} s late: {self._shown(event.scheduled_run_time)}")

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
