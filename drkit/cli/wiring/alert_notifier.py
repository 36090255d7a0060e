"""Reports a continuous audit's findings: to people on stderr, the store, the journal, and the user's hooks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from rich.text import Text

from drkit.cli.wiring.context import Invocation
from drkit.model.audit.continuous_audit import KINDS, AuditProgress, Reconciled
from drkit.model.clock import iso, now
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.link_state import AUDIT_DEVIATION, Problem
from drkit.model.runs import JournalEntry, RunSummary
from drkit.model.topology import Link, LinkId

if TYPE_CHECKING:
    from drkit.observe.alert_hooks import AlertHooks
    from drkit.store.api import Store

"""The kind under which `drkit status` lists a range that deviates, and the `event` of an alert."""

_KIND = "audit"
_DEVIATED, _UNKNOWN, _HOOKED = "deviated", "unknown", "hooks"
_ATTEMPTS = 5
_PATIENCE_SECONDS = 10.0

RangeName = tuple[int, str]
"""Of a finding: the batch's number and the range."""


class AlertNotifier:
    """Reports what was found; call `start`, then `report` for each batch, then `finish`.

    Args:
        run: the command, for its stderr.
        store: where problems, the listing and the journal are kept.
        link: whose audit it is.
        hooks: called once for each range that deviates, on a thread of their own: the audit doesn't wait for them.
    """

    def __init__(self, run: Invocation, store: Store, link: Link, hooks: AlertHooks) -> None:
        self._run = run
        self._store = store
        self._link = link
        self._hooks = hooks
        self._audit: str | None = None  # the audit's run, once it is known
        self._last: JournalEntry | None = None
        self._unsure = False  # whether the journal may hold more than `_last`
        self._outcomes: list[tuple[str, dict[str, Any]]] = []  # how hooks ended that the store did not take yet
        self._lock = threading.Lock()  # of these three: the hooks' thread journals too
        self._known: set[RangeName] = set()
        self._batch: tuple[int, int] | None = None
        self._unjournaled: list[dict[str, Any]] = []
        self._closed = threading.Event()
        self._hook_thread = _HookThread(self._call_hooks) if hooks else None

    def say(self, text: str) -> None:
        """A line on stderr."""
        self._tell(Text(f"audit {self._link.id}: {text}"))

    def _tell(self, text: Text, level: str = "info", **about: Any) -> None:
        """A line, or an event. Any thread calls it: Spark's has no context, so link and run are given."""
        self._run.writer.remark(text, level, link=str(self._link.id), run=self._audit, **about)

    def start(self, progress: AuditProgress) -> None:
        """Before the first batch: what an audit that was killed had found and told no hook is told them now.

        Raises:
            Unreachable: the store doesn't answer.
        """
        self._audit = progress.run
        entries = self._store.entries(progress.run)
        self._last = entries[-1] if entries else None
        payloads = [(entry.event, json.loads(entry.payload)) for entry in entries]
        self._known = {_range_of(payload) for event, payload in payloads if event != _HOOKED}
        called = {_range_of(payload) for event, payload in payloads if event == _HOOKED}
        if self._hook_thread is not None:
            for event, payload in payloads:
                if event == _DEVIATED and payload.get("hooks") and _range_of(payload) not in called:
                    self._hook_thread.put(payload)

    def report(self, found: Sequence[Reconciled], progress: AuditProgress) -> None:
        """After a batch: what deviates is an alert; the listing is brought up to date.

        A batch may count as done only once this has returned. Where it raises, call it again with the same: nothing
        that was said, kept or told is so again. Hooks are told although the store doesn't answer.

        Raises:
            Unreachable: the store doesn't answer; not all is kept yet.
            DrkitError: the store can't take it.
        """
        wrong = [each for each in found if each.deviates or each.problem is not None]
        fresh: list[dict[str, Any]] = []
        if (progress.batch, progress.looks) != self._batch:
            self._batch = progress.batch, progress.looks
            self._print_batch(found, wrong, progress)
            fresh = [payload for each in wrong if _range_of(payload := self._alert(each, progress)) not in self._known]
            self._unjournaled = list(fresh)
        try:
            for each in wrong:
                if each.deviates:
                    self._store.put_problem(self._link.id, self._problem(each))
            while self._unjournaled:
                payload = self._unjournaled[0]
                self._journal(progress.run, _DEVIATED if payload["event"] == AUDIT_DEVIATION else _UNKNOWN, payload)
                self._known.add(_range_of(payload))
                del self._unjournaled[0]
            self._journal_outcomes()
        finally:
            if self._hook_thread is not None:
                for payload in fresh:
                    if payload["event"] == AUDIT_DEVIATION:
                        self._hook_thread.put(payload)
        try:
            self._update_listing(progress, "running" if progress.verdict == "clean" else progress.verdict)
        except DrkitError as error:
            self.say(f"`drkit runs` lists this audit as it was before: {error.what}")

    def finish(self, progress: AuditProgress) -> None:
        """The audit stops; its run is listed with what it came to."""
        left = 0 if self._hook_thread is None else self._hook_thread.close()
        self._closed.set()
        if left:
            self.say(f"{left} alerts were not told to every hook yet; the next start on this checkpoint does that")
        try:
            self._journal_outcomes()
            self._update_listing(progress, progress.verdict)
        except DrkitError as error:
            self.say(f"`drkit runs` won't list this audit as it ended: {error.what}")

    def _print_batch(self, found: Sequence[Reconciled], wrong: Sequence[Reconciled], progress: AuditProgress) -> None:
        records = sum(each.counts.source_records for each in found)
        if not wrong:
            self.say(f"{records:,} records in {len(found)} ranges are equal, {progress.latency_seconds:.1f} s")
        for each in wrong:
            word, style, level = ("ALERT", "bold red", "error") if each.deviates else ("unknown", "yellow", "warning")
            about = {"topic": each.closed.topic, "partition": each.closed.partition}
            self._tell(Text(f"{word} audit {self._link.id}: {each}", style), level, **about)

    def _problem(self, each: Reconciled) -> Problem:
        return Problem(
            kind=AUDIT_DEVIATION,
            topic=each.closed.topic,
            partition=each.closed.partition,
            reason=f"the continuous audit found that the target deviates: {each}",
            remedy=f"{_audit_command(self._link.id, each.closed.topic)} names every record; once it is "
            f"dealt with, drkit link acknowledge '{self._link.id}' {AUDIT_DEVIATION} clears this",
            halted=False,
            since=now(),
        )

    def _alert(self, each: Reconciled, progress: AuditProgress) -> dict[str, Any]:
        """What hooks are given and the journal keeps (docs/schemas/audit-alert.schema.json)."""
        closed, (first, until) = each.closed, each.behind or (None, None)
        name = f"{closed.topic}:{closed.partition}:{closed.first}"
        return {
            "event": AUDIT_DEVIATION if each.deviates else _UNKNOWN,
            "source": self._link.id.source,
            "target": self._link.id.target,
            "run": progress.run,
            "batch": progress.batch,
            "range": name if until is None else f"{name}:{first}-{until - 1}",  # it grows, and is another alert then
            "found_at": iso(now()),
            "found": str(each),
            "topic": closed.topic,
            "target_topic": each.target_topic,
            "partition": closed.partition,
            "first_offset": closed.first if first is None else None,
            "last_offset": closed.until - 1 if first is None else None,
            "target_first_offset": first,
            "target_last_offset": None if until is None else until - 1,
            "counts": {name: getattr(each.counts, name) for name in KINDS},
            "gone": each.gone,
            "first": [sample._asdict() for sample in each.first],
            "remedy": f"{_audit_command(self._link.id, closed.topic)} names every record",
            "hooks": bool(self._hooks),
        }

    def _call_hooks(self, payload: Mapping[str, Any]) -> None:
        """On the thread of the hooks: call them and keep how that went."""
        environment = {"DRKIT_RUN": str(payload["run"]), "DRKIT_LINK": str(self._link.id)}
        alert = {key: value for key, value in payload.items() if key not in {"batch", "hooks"}}
        failed = self._hooks.call(alert, environment)
        if self._closed.is_set():  # it was counted as left, and the store may be closed
            return
        for reason in failed:
            self.say(f"an alert of {payload['topic']} was not taken: {reason}")
        kept = {"batch": payload["batch"], "range": payload["range"], "failed": failed}
        with self._lock:
            self._outcomes.append((str(payload["run"]), kept))
        try:
            self._journal_outcomes()
        except DrkitError as error:
            self.say(f"the store did not take yet that hooks were called: {error.what}")

    def _journal_outcomes(self) -> None:
        """Journal the outcomes of hooks, as far as the store takes them."""
        with self._lock:
            while self._outcomes:
                run, kept = self._outcomes[0]
                self._append(run, _HOOKED, kept)
                del self._outcomes[0]

    def _journal(self, run: str, event: str, payload: Mapping[str, Any]) -> None:
        with self._lock:
            self._append(run, event, payload)

    def _append(self, run: str, event: str, payload: Mapping[str, Any]) -> None:
        """Append an entry, once only: one whose answer was lost is found in the journal.

        Raises:
            Unreachable: the store doesn't answer, or takes no entry.
        """
        for _ in range(_ATTEMPTS):
            if self._unsure:
                entries = self._store.entries(run)
                self._last, self._unsure = (entries[-1] if entries else None), False
                if any(
                    each.event == event and _range_of(json.loads(each.payload)) == _range_of(payload)
                    for each in entries
                ):
                    return
            entry = JournalEntry.chained(
                self._last, run=run, at=now(), stage=_KIND, event=event, payload=json.dumps(payload)
            )
            self._unsure = True  # until the store has said that it is kept
            if self._store.append_entry(entry):
                self._last, self._unsure = entry, False
                return
        raise Unreachable(
            f"the journal of {run} accepts no entry: its next place is always taken",
            remedy="Check that no other audit uses a copy of this checkpoint",
        )

    def _update_listing(self, progress: AuditProgress, state: str) -> None:
        counts = progress.counts
        detail = (
            f"{progress.link}: continuous, {counts.source_records:,} records in {progress.ranges:,} ranges, "
            f"{progress.alerts:,} of them deviate"
        )
        began = datetime.fromisoformat(progress.started_at)
        self._store.put_run(RunSummary(progress.run, _KIND, state, began, now(), detail))


class _HookThread:
    """A thread that calls for each thing put, one after the other."""

    def __init__(self, call: Callable[[Mapping[str, Any]], None]) -> None:
        self._call = call
        self._waiting: SimpleQueue[Mapping[str, Any] | None] = SimpleQueue()
        self._stopped = threading.Event()
        self._put = self._done = 0  # each counted by one thread only
        self._thread = threading.Thread(target=self._run, name="alert-hooks", daemon=True)
        self._thread.start()

    def put(self, payload: Mapping[str, Any]) -> None:
        """Have it called soon."""
        self._put += 1
        self._waiting.put(payload)

    def close(self) -> int:
        """Let it call what is waiting for a moment; returns how many are left, the one at work included."""
        self._waiting.put(None)
        self._thread.join(_PATIENCE_SECONDS)
        self._stopped.set()
        return self._put - self._done

    def _run(self) -> None:
        while (payload := self._waiting.get()) is not None and not self._stopped.is_set():
            self._call(payload)
            self._done += 1


def _audit_command(link: LinkId, topic: str) -> str:
    return f"drkit audit --link '{link}' --topic {topic}"


def _range_of(payload: Mapping[str, Any]) -> RangeName:
    return int(payload["batch"]), str(payload["range"])
