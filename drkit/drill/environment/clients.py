"""The applications of a link: starting, moving and stopping them, their history, and what happened to the link."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from drkit.drill.environment.child_processes import Child, wait_exited
from drkit.drill.experiment.base import DEFAULT_LINK, SOURCE, TARGET, LinkSpec
from drkit.drill.experiment.steps import Workload
from drkit.drill.judge.history import (
    Attempt,
    AttemptOutcome,
    ConfirmedPosition,
    HistoryPart,
    Poll,
    RecordId,
    StatedLoss,
    StatedPosition,
)
from drkit.drill.workload.client_files import ClientSpec, LedgerReader
from drkit.drill.workload.reading import ANSWER_SECONDS, NotRead, group_positions
from drkit.model.errors import Refused

Kind = Literal["producer", "consumer"]
FLUSH_SECONDS = 3.0
"""How long a stopping producer waits for acknowledgements; later ones are unknown to it."""
_DEFAULT = LinkSpec(source=SOURCE, target=TARGET)


@dataclass(frozen=True)
class Client:
    """One client process. `name` is unique in the drill: `producer-1`, `consumer-2` …, with its link before it unless
    that is the default one."""

    name: str
    kind: Kind
    cluster: str
    child: Child
    ledger: LedgerReader


class Clients:
    """All clients of a link that a drill started, including ended ones. `drill`: the name in their records."""

    def __init__(
        self,
        drill: str,
        folder: Path,
        workload: Workload,
        properties: Mapping[str, dict[str, str]],
        link: LinkSpec = _DEFAULT,
    ) -> None:
        self._drill = drill
        self._link = link
        self._folder = folder
        self._workload = workload
        self._properties = properties
        self._all: list[Client] = []

    def start(self, kind: Kind, cluster: str, *, clock_skew_seconds: float = 0.0) -> Client:
        """Start a client on a cluster. A producer continues the numbers of earlier ones.

        `clock_skew_seconds`: how far ahead a producer's clock is.
        """
        link = "" if self._link.name == DEFAULT_LINK else f"{self._link.source}-to-{self._link.target}-"
        name = f"{link}{kind}-{1 + sum(client.kind == kind for client in self._all)}"
        ledger = self._folder / f"{name}.sqlite"
        workload = self._workload
        # Concurrent producers: key and number identify a record, so each has keys of its own.
        prefix = f"{cluster}-k" if kind == "producer" and self.running("producer") else "k"
        spec = ClientSpec(
            drill=self._drill,
            ledger=str(ledger),
            properties=self._properties[cluster],
            topic=self._link.topic_on(cluster, workload.topic),
            partitions=workload.partitions,
            group=workload.group,
            keys=workload.keys,
            rate=workload.records_per_second,
            value_bytes=workload.value_bytes,
            commit_every_seconds=workload.commit_every_seconds,
            flush_seconds=FLUSH_SECONDS,
            parent=os.getpid(),
            next_seqs=self._next_seqs() if kind == "producer" else {},
            key_prefix=prefix,
            # A moved group has a position there, or it was forgotten and skips unread records.
            offset_reset="latest" if any(client.kind == "consumer" for client in self._all) else "earliest",
            clock_skew_seconds=clock_skew_seconds,
            late_every=0 if workload.late is None else workload.late.every,
            late_seconds=0.0 if workload.late is None else workload.late.seconds,
            **(self._transactions(f"{cluster}-{prefix}") if kind == "producer" else {}),
        )
        path = self._folder / f"{name}.json"
        spec.write(path)
        arguments = ["-m", f"drkit.drill.workload.{kind}", str(path)]
        child = Child(name, arguments, self._folder / f"{name}.log", self._folder)
        client = Client(name, kind, cluster, child, LedgerReader(ledger))
        self._all.append(client)
        return client

    def _transactions(self, name: str) -> dict[str, Any]:
        """A producer's settings, if the workload writes in transactions.

        The producer that follows another one has its id, and so aborts the transaction that that one left open.
        """
        asked = self._workload.transactions
        if asked is None:
            return {}
        return {
            "transactional_id": f"{self._drill}-{name}",
            "transaction_records": asked.records,
            "abort_every": asked.abort_every,
        }

    def restart_producer(self, cluster: str, *, clock_skew_seconds: float) -> Client:
        """Replace the producer on a cluster by another one whose clock is ahead.

        Raises:
            Refused: none runs there.
        """
        running = [client for client in self.running("producer") if client.cluster == cluster]
        if not running:
            raise Refused(f"no producer runs on {cluster}", remedy="Check the steps before this one")
        self.stop(running)
        return self.start("producer", cluster, clock_skew_seconds=clock_skew_seconds)

    def running(self, kind: Kind | None = None) -> list[Client]:
        """Running clients (of a kind)."""
        return [c for c in self._all if c.child.exit_code() is None and kind in (None, c.kind)]

    def died(self) -> list[Client]:
        """Clients that ended unrequested, or with an incomplete history."""
        return [c for c in self._all if c.child.exit_code() is not None and not c.ledger.closed()]

    def stop(self, clients: list[Client]) -> None:
        """End clients in order, concurrently; kills those that don't end in time (their history is incomplete)."""
        for client in clients:
            if client.child.exit_code() is None:
                client.child.send(signal.SIGTERM)
        wait_exited([client.child for client in clients])
        for client in clients:
            client.child.stop(timeout_seconds=0.1)

    def count(self, table: Literal["acks", "polls"], cluster: str) -> int:
        """Rows in the history of a cluster's clients so far."""
        return sum(client.ledger.count(table) for client in self._all if client.cluster == cluster)

    def positions(self, cluster: str) -> dict[int, int]:
        """The group's position by partition on a cluster, by its own account."""
        found: dict[int, int] = {}
        for client in self._all:
            if client.kind == "consumer" and client.cluster == cluster:
                for partition, end in client.ledger.ends().items():
                    found[partition] = max(end, found.get(partition, 0))
        return found

    def _next_seqs(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for client in self._all:
            for key, following in client.ledger.next_seqs().items():
                found[key] = max(following, found.get(key, 0))
        return found

    # -- their history -----------------------------------------------------------------------

    def attempts(self) -> tuple[Attempt, ...]:
        """Every record that was sent, in order."""
        found = []
        for client in self._all:
            for key, seq, partition, sent_at, digest, offset, acked_at, txn, aborted in client.ledger.attempts():
                outcome = AttemptOutcome.UNKNOWN if offset is None else AttemptOutcome.ACKED
                found.append(
                    Attempt(
                        record=RecordId(str(key), _int(seq)),
                        cluster=client.cluster,
                        partition=_int(partition),
                        sent_at=_float(sent_at),
                        digest=_int(digest),
                        outcome=AttemptOutcome.ABORTED if aborted else outcome,
                        offset=None if offset is None else _int(offset),
                        acked_at=None if acked_at is None else _float(acked_at),
                        transaction=None if txn is None else f"{client.name}-{_int(txn)}",
                    )
                )
        return tuple(found)

    def polls(self) -> tuple[Poll, ...]:
        """Every record that the group received, in order."""
        found = []
        for client in self._all:
            for assignment, partition, offset, key, seq, at in client.ledger.polls():
                record = None if key is None else RecordId(str(key), _int(seq))
                found.append(
                    Poll(
                        client.name,
                        _int(assignment),
                        client.cluster,
                        _int(partition),
                        _int(offset),
                        record,
                        _float(at),
                    )
                )
        return tuple(found)

    def committed(self) -> tuple[ConfirmedPosition, ...]:
        """Every position that a cluster confirmed to the group."""
        return tuple(
            ConfirmedPosition(client.cluster, _int(partition), _int(offset), _float(at))
            for client in self._all
            for partition, offset, at in client.ledger.positions()
        )

    def incomplete(self) -> dict[HistoryPart, str]:
        """Possibly incomplete parts of the history, with the reason."""
        found: dict[HistoryPart, str] = {}
        for client in self.died():
            part = HistoryPart.ATTEMPTS if client.kind == "producer" else HistoryPart.POLLS
            found[part] = f"{client.name} did not end in order ({client.child.ending()})"
        return found


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value


def _float(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


@dataclass
class LinkProgress:
    """A link and its state so far. Times are seconds of CLOCK_MONOTONIC.

    `drill`: the name by which the link's records are recognized.
    `disasters`: the moments of the faults on its source, and of its failovers.
    `failover`: the document of the last failover that moved it, or its part of it; `failed_over`: whether that
    succeeded. `away`: whether it is failed over now: no failback or reprotect succeeded since.
    `moved`: whether clients were moved to the target after a failover that succeeded.
    `returned_at`: when a failback brought it back; None: it was never failed over, or is again, or for good.
    `started_from`: the group's positions on the target before it read there, and on the source where a failback put
    it; `start_unknown` says why they couldn't be read.
    `stated`: where the last failover stated that the group continues; empty if it did not succeed.
    `stated_loss`: what it stated as lost; None where it did not succeed, or is not the first one: it doesn't know what
    an earlier one left behind. `failovers`: how many moved it, or should have.
    `turned`: whether the configuration has it the other way round, after a reprotect.
    """

    spec: LinkSpec
    workload: Workload
    clients: Clients
    drill: str
    disasters: list[float] = field(default_factory=list)
    failover: dict[str, Any] | None = None
    failed_over: bool = False
    away: bool = False
    moved: bool = False
    returned_at: float | None = None
    started_from: tuple[ConfirmedPosition, ...] = ()
    start_unknown: str | None = None
    stated: tuple[StatedPosition, ...] = ()
    stated_loss: StatedLoss | None = None
    failovers: int = 0
    turned: bool = False

    @property
    def disaster_at(self) -> float | None:
        """From when RPO and RTO are measured; None: nothing struck the source, and no failover began."""
        return min(self.disasters, default=None)

    def note_disaster(self) -> None:
        """Note the moment of a fault on the source, or of a failover."""
        self.disasters.append(time.monotonic())

    def topic_on(self, cluster: str) -> str:
        """The workload's topic on one of the link's clusters."""
        return self.spec.topic_on(cluster, self.workload.topic)

    def note_positions(self, properties: dict[str, str], cluster: str) -> None:
        """Keep the group's position on a cluster, by its coordinator, before it reads there."""
        workload, topic = self.workload, self.topic_on(cluster)
        try:
            found = group_positions(properties, workload.group, topic, workload.partitions, ANSWER_SECONDS)
        except NotRead as error:
            self.start_unknown = str(error)
            return
        at = time.monotonic()
        self.started_from += tuple(
            ConfirmedPosition(cluster, partition, offset, at) for partition, offset in found.items()
        )

    @property
    def configured(self) -> tuple[str, str]:
        """Source and target as the lab's configuration has them now."""
        source, target = self.spec.clusters
        return (target, source) if self.turned else (source, target)
