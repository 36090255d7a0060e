"""A page's server with synthetic statuses and decisions, for tests that read it like a browser or a program."""

from __future__ import annotations

import http.client
import json
import ssl
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from drkit.cli.output import to_json
from drkit.config import Objectives
from drkit.model.clock import now
from drkit.model.errors import DrkitError, error_body
from drkit.model.offsets import Certainty
from drkit.model.runs import RunSummary
from drkit.model.statistics import EngineStatistics, Latency, WorkerStatistics
from drkit.model.topology import Link, LinkId
from drkit.observe.history import StatusHistory
from drkit.observe.link_status import GroupStatus, LinkStatus, PartitionStatus, RecoveryPoint, status_document
from drkit.observe.page.access import Access
from drkit.observe.page.application import Certificates, PageServer, bind, make_application
from drkit.observe.page.board import Board, EarlierRuns, Sources
from drkit.observe.page.decision import Answer, Decision, Obstruction, PlannedRow
from drkit.store import open_store

LINK = LinkId("primary", "dr")
LATENCY = Latency(0.0042, 0.013, 300, 300.0, 0.2, arrived=900, seconds=4.5)
MARKUP = "<img src=x onerror=\"document.title='owned'\">"
"""A name that is markup if a page doesn't escape it."""


def partition(number: int = 0, *, lag: int | None = 12, topic: str = "flights") -> PartitionStatus:
    return PartitionStatus(
        topic=topic,
        target_topic=topic,
        partition=number,
        source_start=0,
        source_end=1200,
        mirrored_through=1188,
        target_start=0,
        target_end=1193,
        delta=5,
        lag_records=lag,
        lag_seconds=None if lag is None else 0.8,
    )


def snapshot(**changes: object) -> LinkStatus:
    at = now()
    group = GroupStatus("billing", "flights", 0, 900, 905, Certainty.EXACT, None, at - timedelta(seconds=3))
    values: dict[str, Any] = {
        "link": Link(LINK, topics=(".*",)),
        "state": "mirroring",
        "reason": None,
        "source_reachable": True,
        "target_reachable": True,
        "worker": "host:1:2",
        "observed_at": at,
        "partitions": (partition(),),
        "groups": (group,),
        "problems": (),
        "recovery_point": RecoveryPoint(12, 0.8),
    }
    return LinkStatus(**{**values, **changes})


def worker(**changes: Any) -> WorkerStatistics:
    at = now()
    counted = EngineStatistics(
        records=5000,
        bytes=1_200_000,
        batches_forwarded=40,
        batches_rebuilt={"compacted": 2, "aborted": 3},
        batches_merged=7,
        markers_matched=4,
        in_flight_records=12,
        in_flight_bytes=3_400,
    )
    plain = WorkerStatistics(
        "host:12:99:abcd", at, at - timedelta(hours=1), "mirroring", None, 1, 1234.5, 4_500_000.0, counted
    )
    return replace(plain, **changes)


def large(partitions: int, groups: int) -> LinkStatus:
    """A link of so many partitions (100 per topic) and groups (4 positions each), every hundredth with a problem."""
    at = now()
    topics = max(1, partitions // 100)
    return snapshot(
        partitions=tuple(
            partition(n % 100, lag=None if n % 1000 == 7 else n % 5 and n % 97, topic=f"orders.region-{n // 100:03d}")
            for n in range(partitions)
        ),
        groups=tuple(
            GroupStatus(
                f"consumer-{n:04d}",
                f"orders.region-{(n + k) % topics:03d}",
                k,
                1000 + n,
                1000 + n if n % 100 else None,
                Certainty.EXACT if n % 100 else Certainty.UNAVAILABLE,
                None if n % 100 else "the target's retention removed it",
                at - timedelta(seconds=n % 7),
            )
            for n in range(groups)
            for k in range(4)
        ),
        statistics=(worker(latency=LATENCY), worker(worker="other:77:1:beef", records_per_second=88.0)),
        recovery_point=RecoveryPoint(
            None, None, reason="how much is missing isn't known of orders.region-000:7: no answer"
        ),
    )


def decision(answer: Answer = Answer.YES, *, positions: Sequence[PlannedRow] = (), **changes: Any) -> Decision:
    obstruction = Obstruction(None, "group billing is active on dr", "Its offsets can't be set", "Stop its consumers")
    values: dict[str, Any] = {
        "to": "dr",
        "links": (str(LINK),),
        "answer": answer,
        "obstructions": () if answer is Answer.YES else (obstruction,),
        "made_at": now(),
        "records": 12,
        "seconds": 0.8,
        "digest": "ab" * 32,
        "stages": (("fence", "primary is closed to its clients"), ("commit", "positions are committed on dr")),
        "positions": tuple(positions) or (planned("billing"),),
    }
    return Decision(**{**values, **changes})


def planned(group: str, partition: int = 0, **changes: Any) -> PlannedRow:
    row = PlannedRow(
        "primary->dr", group, "flights", partition, "flights", 900, 905, "mapping", "exact", 0, 0, 0, 0, None
    )
    return row._replace(**changes)


def earlier(**changes: Any) -> EarlierRuns:
    return replace(EarlierRuns((), (), {}, None, "no drill is kept on this machine"), **changes)


def sources(
    statuses: Callable[[], Sequence[LinkStatus]] = lambda: [snapshot()],
    decisions: Callable[[], Sequence[Decision]] = lambda: [decision()],
    before: Callable[[], EarlierRuns] = earlier,
    **changes: Any,
) -> Sources:
    plain = Sources(statuses, decisions, before, lambda _: None, list, lambda _: None, {"dr": (str(LINK),)})
    return replace(plain, **changes)


def board_of(given: Sources, objectives: Objectives | None = None) -> Board:
    """A board that has observed everything once, with its history in its own store; without a thread."""
    store = open_store("sqlite:///:memory:")
    board = Board(given, StatusHistory(store, [LINK]), objectives or Objectives())
    weakref.finalize(board, store.close)
    for each in (board.status, board.decision, board.earlier):
        each.look_once()
    return board


def runs(count: int) -> tuple[RunSummary, ...]:
    at = now()
    return tuple(
        RunSummary(f"01RUN{n:05d}", "failover", "closed", at - timedelta(hours=n), at, f"{LINK} unplanned to dr")
        for n in range(count)
    )


@dataclass(frozen=True, slots=True)
class Answered:
    code: int
    headers: dict[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class Served:
    """A served page."""

    url: str
    board: Board
    trust: ssl.SSLContext | None = None

    def connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=30, context=self.trust)
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)

    def ask(self, path: str, *, method: str = "GET", body: str | None = None, **headers: str) -> Answered:
        """One request; underscores of header names mean hyphens."""
        connection = self.connection()
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answered(answer.status, found, answer.read().decode())
        finally:
            connection.close()


@contextmanager
def served(
    board: Board,
    access: Access | None = None,
    certificates: Certificates | None = None,
    trust: ssl.SSLContext | None = None,
) -> Iterator[Served]:
    def as_json(statuses: Sequence[LinkStatus] | None, error: DrkitError | None) -> str:
        return to_json({"error": error_body(error)} if error is not None else status_document(statuses or ()))

    server = PageServer(make_application(board, access or Access(), as_json), bind("127.0.0.1", 0), certificates)
    board.start()  # old observations don't count any more
    server.start()
    try:
        yield Served(server.url, board, trust)
    finally:
        board.stop()
        server.stop()


STATIC = Path(__file__).parents[3] / "drkit" / "observe" / "page" / "static"
