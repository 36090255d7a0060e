"""The scenario, act by act: the operator's commands and the clusters' resulting content.

Every command is the real one, run as a child process; every claim is checked against what an
independent witness reads from the brokers. The primary is killed with SIGKILL, in mid-stream.
"""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from drkit.config import load_config
from drkit.demo.picture import Picture
from drkit.demo.witness import GROUPS, READ_TOPICS, Consumers, PartitionContent, committed, partitions_of, read_topics
from drkit.drill.environment.child_processes import Child, environment, run_command, wait_exited
from drkit.drill.environment.environment import document
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.lab import Lab
from drkit.lab.datasets import open_dataset
from drkit.lab.datasets.events import TimestampMode
from drkit.lab.datasets.report import LoadReport
from drkit.lab.datasets.workload import DatasetWorkload, LoadOptions, prepare_topics
from drkit.model.clock import now
from drkit.model.errors import DrkitError, ExitCode
from drkit.model.topology import TopicPartition
from drkit.observe.status import link_statuses
from drkit.state_topic.store_age import ComparedStores
from drkit.store import open_store

"""The topic that the three groups read."""

COMPACTED = frozenset({"aircraft.latest"})
"""Compared by audit only: the brokers compact both sides, each in its own time."""

BACK_SECONDS = 5
"""The failover goes back this far before the disaster."""

_DELIVERY_SECONDS = 5.0
"""Longer than a slow broker needs, but short: the load ends this soon after the disaster."""

_LOAD_ENDS_SECONDS = 60.0
_CATCH_UP_SECONDS = 60.0
_MIRROR_ENDS_SECONDS = 60.0
_MIRROR_STOPS_SECONDS = 30.0
_DONE = (ExitCode.OK, ExitCode.OBJECTIVE_MISSED)
_SESSIONS_EXPIRE_WITHIN = 60.0
_LOOK_AGAIN = 0.5


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim, checked."""

    text: str
    held: bool
    found: str


@dataclass(slots=True)
class Claims:
    """All claims checked so far, in the order of the story."""

    checked: list[Claim] = field(default_factory=list)

    def check(self, text: str, held: bool, found: str) -> bool:
        """Record a claim with its finding; returns whether it held."""
        self.checked.append(Claim(text, held, found))
        return held

    def equal(self, text: str, expected: object, found: object) -> bool:
        """Record the claim that two values agree."""
        same = expected == found
        return self.check(text, same, _words(found) if same else f"expected {_words(expected)}, found {_words(found)}")

    @property
    def all_held(self) -> bool:
        """Whether none failed (and any was made at all)."""
        return bool(self.checked) and all(claim.held for claim in self.checked)

    def document(self) -> list[dict[str, Any]]:
        """The claims as JSON."""
        return [{"claim": claim.text, "held": claim.held, "found": claim.found} for claim in self.checked]


def _words(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def counted(value: int | None) -> str:
    """A readable count; "not known" if unknown."""
    return "unknown" if value is None else f"{value:,}"


@dataclass(frozen=True, slots=True)
class Script:
    """How big the demo is.

    `rate`: records a second. Once `kill_after` are acknowledged the link between the sites stalls; once
    `stalled` more are, the primary is killed.
    """

    rate: float = 12_000
    kill_after: int = 240_000
    stalled: int = 3_000
    events_on_dr: int = 10_000
    events_left_unread: int = 1_000
    store: Literal["cassandra", "sqlite"] = "cassandra"
    brokers: int = 1


@dataclass(slots=True)
class Findings:
    """The results, for the evidence."""

    killed_at: datetime | None = None
    at: str | None = None
    produced: int = 0
    failover: dict[str, Any] = field(default_factory=dict)
    audits: dict[str, dict[str, Any]] = field(default_factory=dict)
    read_again: dict[str, int] = field(default_factory=dict)
    unseen: int | None = None


class Story:
    """Plays the acts in order. `lab` remains for the caller, who stops it."""

    def __init__(self, directory: Path, script: Script, picture: Picture) -> None:
        self.claims = Claims()
        self.findings = Findings()
        self.lab: Lab | None = None
        self._dir = directory
        self._script = script
        self._picture = picture
        self._on_primary: Consumers | None = None
        self._on_dr: Consumers | None = None
        self._workload: DatasetWorkload | None = None
        self._mirror: Child | None = None

    def play(self) -> None:
        """All acts. Raises what a step raises; what was checked so far is in `claims`."""
        self._lab_up()
        self._load_and_mirror()
        self._disaster()
        self._fail_over()
        self._go_on()
        self._primary_back()
        self._audit_after_failover()
        self._fail_back()
        self._audit_at_the_end()

    def close(self) -> None:
        """End every thread and child of the story; the lab stays for the caller."""
        if self._workload is not None:
            self._workload.stop(give_up=True)
        for consumers in (self._on_primary, self._on_dr):
            if consumers is not None:
                consumers.stop()
        if self._mirror is not None:
            self._mirror.stop(_MIRROR_STOPS_SECONDS)

    # -- acts --------------------------------------------------------------------------------------

    def _lab_up(self) -> None:
        script = self._script
        with self._picture.act("The lab comes up") as act:
            self._picture.typed(command_line(["lab", "up", "--dir", str(self._dir), "--store", script.store]))
            lab = self.lab = Lab.up(
                self._dir, script.brokers, script.store, say=lambda line: setattr(act, "note", line)
            )
            act.note = f"two Kafka clusters, {'one Cassandra' if script.store == 'cassandra' else 'SQLite'}"
        scene = self._picture.scene
        scene.clusters.update({"primary": "up", "dr": "up"})
        config = load_config(lab.config_path)
        store = open_store(config.store.plain_url)
        links = [link.link() for link in config.links]
        compared = ComparedStores()
        scene.look = lambda: link_statuses(config, store, links, timeout_seconds=1.0, compared=compared)

    def _load_and_mirror(self) -> None:
        script, lab = self._script, self._the_lab
        with self._picture.act("Flights are produced, read and mirrored") as act:
            dataset = open_dataset("flights", timestamps=TimestampMode.LIVE)
            with ClusterAdmin("primary", self._config.clusters["primary"]) as admin:
                prepare_topics(admin, dataset.topics)
            self._picture.typed(command_line(["mirror"]))
            arguments = ["-m", "drkit", "mirror", *self._options]
            self._mirror = Child(
                "mirror", arguments, lab.dir / "mirror.log", Path.cwd(), env=environment(configured=True)
            )
            self._on_primary = Consumers("primary", self._client("primary"), live=False)
            self._on_primary.start()
            workload = self._workload = DatasetWorkload(dataset, self._client("primary"), self._load_options)
            workload.start()
            self._picture.scene.readers = self._on_primary.lines
            self._picture.scene.produced = lambda: workload.progress.acknowledged
            while workload.progress.acknowledged < script.kill_after:
                if (ended := workload.join(0.2)) is not None:
                    raise _ended_early(ended)
                if self._mirror.exit_code() is not None:
                    raise DrkitError(f"the mirror ended: {self._mirror.ending()}")
            act.note = f"{workload.progress.acknowledged:,} records acknowledged"

    def _disaster(self) -> None:
        lab, workload, mirror = self._the_lab, self._workload, self._mirror
        assert workload is not None  # noqa: S101  # made by the act before
        assert mirror is not None  # noqa: S101  # made by the act before
        with self._picture.act("The link stalls, then SIGKILL: the primary is gone") as act:
            mirror.send(signal.SIGSTOP)  # so that the primary holds what dr never gets
            enough = workload.progress.acknowledged + self._script.stalled
            while workload.progress.acknowledged < enough:
                if (ended := workload.join(0.02)) is not None:
                    raise _ended_early(ended)
            self._picture.typed(command_line(["lab", "kill", "primary"]))
            lab.kill("primary")
            mirror.send(signal.SIGCONT)
            self.findings.killed_at = killed = now()
            self._picture.scene.clusters["primary"] = f"killed at {killed.astimezone():%H:%M:%S}"
            assert self._on_primary is not None  # noqa: S101  # made by the act before
            self._on_primary.stop()
            report = self._end_load()
            self.findings.produced = report.acknowledged
            act.note = f"{report.acknowledged:,} records were acknowledged by then"

    def _fail_over(self) -> None:
        killed = self.findings.killed_at or now()
        at = self.findings.at = f"{(killed - timedelta(seconds=BACK_SECONDS)).astimezone():%H:%M:%S}"
        with self._picture.act(f"Failover to dr, at {at}") as act:
            options = ["failover", "--to", "dr", "--at", at]
            self._run(*options, "--dry-run")
            result = self.findings.failover = self._run(*options, "--yes", "--accept-unfenced", codes=_DONE)
            evidence = result["evidence"]
            act.note = f"{counted(evidence['rpo_records'])} records lost as observed, {evidence['rto_seconds']:.1f} s"
            assert self._mirror is not None  # noqa: S101  # started two acts ago
            wait_exited([self._mirror], _MIRROR_ENDS_SECONDS)
            refused = "the mirror of the sealed link ends by itself, refused (exit 3)"
            self.claims.equal(refused, 3, self._mirror.exit_code())
        self.claims.equal("the failover run is closed", "closed", result["state"])
        self._check_committed(result)

    def _go_on(self) -> None:
        with self._picture.act("Consumers and producers continue, on dr") as act:
            consumers = self._on_dr = Consumers("dr", self._client("dr"), live=True)
            consumers.start()
            self._picture.scene.readers = consumers.lines
            dataset = open_dataset("flights", timestamps=TimestampMode.LIVE, limit=self._script.events_on_dr)
            workload = self._workload = DatasetWorkload(dataset, self._client("dr"), self._load_options)
            workload.start()
            report = self._end_load()
            self.claims.equal("producers write on dr", "complete", report.outcome.value)
            consumers.stop(catch_up_seconds=_CATCH_UP_SECONDS)
            act.note = f"{report.acknowledged:,} new records, {consumers.read('flights-live'):,} read by flights-live"
        self._check_readings()
        self._leave_unread()

    def _leave_unread(self) -> None:
        """Produce more records after the consumers have stopped, for them to read once they are back."""
        dataset = open_dataset("flights", timestamps=TimestampMode.LIVE, limit=self._script.events_left_unread)
        self._workload = DatasetWorkload(dataset, self._client("dr"), self._load_options)
        self._workload.start()
        self._end_load()

    def _primary_back(self) -> None:
        with self._picture.act("The old primary comes back"):
            self._picture.typed(command_line(["lab", "restart", "primary"]))
            self._the_lab.restart("primary")
            self._picture.scene.clusters["primary"] = "up, with what dr never got"

    def _audit_after_failover(self) -> None:
        with self._picture.act("Audit: what did dr not get?") as act:
            result = self.findings.audits["after the failover"] = self._run(
                "audit", codes=(ExitCode.OK, ExitCode.DEVIATION)
            )
            totals = result["totals"]
            act.note = f"{totals['source_records']:,} records compared, {totals['unseen']:,} unseen"
        through = self._mirrored_through()
        primary, dr = self._read("primary"), self._read("dr")
        missing = sum(
            seen.from_offset(through[tp]) if tp.topic in COMPACTED else seen.records - seen.common_prefix(dr[tp])
            for tp, seen in primary.items()
        )
        self.findings.unseen = missing
        self.claims.check(
            "the primary holds records that dr never got", missing > 0, f"{missing:,} by the witness's count"
        )
        self.claims.equal(
            "the audit finds exactly what the mirror had not reached, as unseen", missing, totals["unseen"]
        )
        self._check_clean("the audit finds nothing else", result)

    def _await_dead_members(self) -> None:
        """The primary that came back keeps the members it had when it died until their sessions expire: until then a
        failback is refused: as far as it knows they still read.
        """
        names = list(GROUPS)
        give_up = time.monotonic() + _SESSIONS_EXPIRE_WITHIN
        with GroupAdmin("primary", self._config.clusters["primary"]) as groups:
            while any(groups.members(names).values()):
                if time.monotonic() > give_up:
                    return  # the failback says who it is
                time.sleep(_LOOK_AGAIN)

    def _fail_back(self) -> None:
        self._await_dead_members()
        cluster_id = self._the_lab.cluster_id("primary")
        with self._picture.act("Failback: salvage, scrub, re-seed, audit, move") as act:
            options = ["failback", "--yes", "--cluster-id", cluster_id, "--accept-unfenced"]
            result = self._run(*options, timeout=600, codes=_DONE)
            self._picture.scene.clusters.update({"primary": "up, primary again", "dr": "up, standby again"})
            act.note = ", ".join(stage["name"] for stage in result["stages"] if stage["outcome"] == "ok")
        self.claims.equal("the failback run is closed", "closed", result["state"])
        self._check_same_content()
        self._check_groups_back()

    def _audit_at_the_end(self) -> None:
        with self._picture.act("Mirror on, audit again") as act:
            self._run("mirror", "--until-caught-up", lines=True)
            result = self.findings.audits["after the failback"] = self._run(
                "audit", codes=(ExitCode.OK, ExitCode.DEVIATION)
            )
            act.note = f"{result['totals']['source_records']:,} records compared: {result['verdict']}"
        self._check_clean("the audit after the failback is clean", result)
        self.claims.equal("nothing is unseen any more", 0, result["totals"]["unseen"])

    # -- claims ------------------------------------------------------------------------------------

    def _check_committed(self, result: dict[str, Any]) -> None:
        """A plain client reads the plan's positions back from dr."""
        planned: dict[str, dict[TopicPartition, int]] = {group: {} for group in GROUPS}
        for each in result["groups"]:
            if each["group"] in planned and each["target_offset"] is not None:
                planned[each["group"]][TopicPartition(each["topic"], each["partition"])] = each["target_offset"]
        bootstrap = self._the_lab.bootstrap("dr")
        found = {group: committed(bootstrap, group, positions) for group, positions in planned.items()}
        text = f"{sum(map(len, planned.values()))} positions of {len(planned)} groups are on dr as planned"
        self.claims.check(text, found == planned and all(planned.values()), "read back by a plain consumer")

    def _check_readings(self) -> None:
        """Each group began where the plan said, and between both clusters no record went unread."""
        before, after = self._on_primary, self._on_dr
        assert before is not None  # noqa: S101  # made by the acts before
        assert after is not None  # noqa: S101  # made by the acts before
        on_dr = self._read("dr", READ_TOPICS)
        everything = {content for seen in on_dr.values() for content in seen.hashes}
        planned = {
            (each["group"], TopicPartition(each["topic"], each["partition"])): each["target_offset"]
            for each in self.findings.failover["groups"]
        }
        for group in GROUPS:
            here, there = before.readings[group].hashes, after.readings[group]
            self.findings.read_again[group] = len(here & there.hashes)
            wrong = [tp for tp, first in there.first_offset.items() if first != planned.get((group, tp))]
            self.claims.check(
                f"{group} continues where the plan put it",
                bool(there.first_offset) and not wrong,
                f"on {len(there.first_offset)} partitions" if not wrong else f"not on {', '.join(map(str, wrong))}",
            )
            if group != "flights-ahead":  # it commits what it has not processed: that is its own loss
                unread = len(everything - here - there.hashes)
                self.claims.equal(f"records on dr that {group} read on neither cluster", 0, unread)

    def _check_clean(self, text: str, result: dict[str, Any]) -> None:
        bad = {kind: result["totals"][kind] for kind in ("lost", "duplicated", "corrupted", "reordered", "foreign")}
        found = ", ".join(f"{count:,} {kind}" for kind, count in bad.items() if count) or "0 of each other kind"
        self.claims.check(text, result["verdict"] == "clean" and not any(bad.values()), found)

    def _check_same_content(self) -> None:
        """Record by record, in order, both clusters hold the same (compacted topics: by the audit)."""
        primary, dr = self._read("primary"), self._read("dr")
        differing = [tp for tp, seen in dr.items() if tp.topic not in COMPACTED and seen.hashes != primary[tp].hashes]
        count = sum(seen.records for tp, seen in dr.items() if tp.topic not in COMPACTED)
        self.claims.check(
            "primary holds what dr holds, record by record, in order",
            not differing and count > 0,
            f"{count:,} records" if not differing else f"differing: {', '.join(map(str, differing))}",
        )

    def _check_groups_back(self) -> None:
        """Each group has as many records left to read on the primary as it had on dr."""
        lab = self._the_lab
        partitions = partitions_of(lab.bootstrap("dr"), READ_TOPICS)
        primary, dr = self._read("primary", READ_TOPICS), self._read("dr", READ_TOPICS)
        for group in GROUPS:
            there = committed(lab.bootstrap("dr"), group, partitions)
            here = committed(lab.bootstrap("primary"), group, partitions)
            left_there = {tp: dr[tp].from_offset(offset) for tp, offset in there.items()}
            left_here = {tp: primary[tp].from_offset(offset) for tp, offset in here.items()}
            self.claims.check(
                f"{group} continues where it was, on the primary",
                left_there == left_here and sum(left_here.values()) > 0,
                f"{sum(left_here.values()):,} records left to read, on dr {sum(left_there.values()):,}",
            )

    # -- helpers -----------------------------------------------------------------------------------

    @property
    def _the_lab(self) -> Lab:
        if self.lab is None:
            raise RuntimeError("the lab isn't up")
        return self.lab

    @property
    def _options(self) -> list[str]:
        return ["--config", str(self._the_lab.config_path), "--output", "json"]

    @property
    def _config(self) -> Any:
        return load_config(self._the_lab.config_path)

    @property
    def _load_options(self) -> LoadOptions:
        return LoadOptions(rate=self._script.rate, delivery_timeout_seconds=_DELIVERY_SECONDS)

    def _client(self, alias: str) -> dict[str, str]:
        return {"bootstrap.servers": self._the_lab.bootstrap(alias)}

    def _run(
        self, *arguments: str, codes: Collection[int] = (0,), timeout: float = 300.0, lines: bool = False
    ) -> dict[str, Any]:
        """Run a command to its end; returns its document. `lines`: it writes one object a line, which are left aside.

        Raises:
            DrkitError: another exit code than `codes`, or no document; with the command's own words.
        """
        self._picture.typed(line := command_line(arguments))
        log = self._the_lab.dir / "commands.log"
        words = ["-m", "drkit", *arguments, *self._options]
        done = run_command(words, log, Path.cwd(), timeout, env=environment(configured=True))
        if done.exit_code is None:
            raise DrkitError(f"`{line}` did not end within {timeout:.0f} s")
        if done.exit_code not in codes:
            raise DrkitError(f"`{line}` exited {done.exit_code}{done.log}")
        found = {} if lines else document(done.stdout)
        if found is None:
            raise DrkitError(f"`{line}` wrote something else than one JSON document")
        return found

    def _end_load(self) -> LoadReport:
        assert self._workload is not None  # noqa: S101  # called after it was made
        report = self._workload.join(_LOAD_ENDS_SECONDS)
        if report is None:
            self._workload.stop(give_up=True)
            raise DrkitError(f"the load did not end within {_LOAD_ENDS_SECONDS:.0f} s")
        return report

    def _read(self, alias: str, topics: tuple[str, ...] | None = None) -> dict[TopicPartition, PartitionContent]:
        names = topics or tuple(spec.name for spec in open_dataset("flights").topics)
        return read_topics(self._the_lab.bootstrap(alias), names)

    def _mirrored_through(self) -> dict[TopicPartition, int]:
        status = self._run("status")
        return {
            TopicPartition(each["topic"], each["partition"]): each["mirrored_through"] or 0
            for each in status["links"][0]["partitions"]
        }


def command_line(arguments: Sequence[str]) -> str:
    """The command as typed in a shell."""
    return shlex.join(["drkit", *arguments])


def _ended_early(report: LoadReport) -> DrkitError:
    """The machine was too busy for the load, more likely than anything else: its brokers answered too late."""
    return DrkitError(
        f"the load ended before the disaster: {report.reason or 'everything was written'}",
        remedy="Play it again when the machine has less to do",
    )
