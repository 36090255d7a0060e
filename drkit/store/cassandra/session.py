"""A session with Cassandra: policies, write timestamps, and errors with drkit's messages."""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    CoordinationFailure,
    DriverException,
    OperationTimedOut,
    ProtocolVersion,
    Timeout,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, ResponseFuture, Session
from cassandra.concurrent import execute_concurrent
from cassandra.connection import ConnectionException
from cassandra.policies import DCAwareRoundRobinPolicy, ExponentialReconnectionPolicy, TokenAwarePolicy
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage, OverloadedErrorMessage, ServerError
from cassandra.query import BatchStatement, BatchType, PreparedStatement, tuple_factory

from drkit.model.clock import Deadline, bounded
from drkit.model.errors import ConfigError, DrkitError, Unreachable
from drkit.store.cassandra.url import CassandraLocation, tls_context
from drkit.store.version import LOOK_SECONDS

T = TypeVar("T")

BATCH_ROWS = 100
"""Rows of one partition per unlogged batch: 10 to 15 times the rows per second of single inserts."""
CONCURRENT_BATCHES = 32
CONCURRENT_READS = 64
CONCURRENT_QUERIES = 8
"""Of queries that have many partitions each."""
SKEW_SECONDS = 0.5
"""A greater difference means that this machine's clock is wrong, rather than the measurement."""

_ALERT_SECONDS = 2.0
_SERIAL = "serial"
_UNANSWERED = (
    NoHostAvailable,
    OperationTimedOut,
    Timeout,
    Unavailable,
    CoordinationFailure,
    ConnectionException,
    UnresolvableContactPoints,
    OverloadedErrorMessage,
    IsBootstrappingErrorMessage,
    ServerError,
    TimeoutError,
)


class ClusterClock:
    """Growing write timestamps (microseconds), by the cluster's clock where this machine's is wrong.

    Cassandra keeps the value with the greatest timestamp. If a mirror's machine was ahead and another machine takes
    over, the new mirror's watermarks would silently lose against the old ones until its own clock caught up. So every
    process uses the one clock that all share.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._lock = Lock()
        self._last = 0
        self._correction = 0

    def __call__(self) -> int:
        """The timestamp of the next write."""
        with self._lock:
            self._last = max(self._last + 1, int(self._wall() * 1e6) + self._correction)
            return self._last

    def compare(self, cluster_seconds: float, before: float, after: float) -> None:
        """Compare with the cluster's clock, read between `before` and `after` of `wall`; before the first write."""
        skew = cluster_seconds - (before + after) / 2
        if abs(skew) - (after - before) / 2 > SKEW_SECONDS:
            with self._lock:
                self._correction = int(skew * 1e6)
                self._last = 0  # the driver also takes timestamps for reads: the earlier ones don't count

    def wall(self) -> float:
        """This machine's clock, seconds since 1970."""
        return self._wall()


class ConditionalResult(NamedTuple):
    """The result of a conditional batch; where it wasn't applied, the generation that prevented it (if any)."""

    applied: bool
    held: int | None


class CassandraSession:
    """Connections to the nodes of one data centre, shared by threads.

    Args:
        location: the nodes and keyspace, and how to ask them.
        wall: this machine's clock (tests set it wrong).

    Raises:
        Unreachable: no node of the data centre answers.
        ConfigError: the data centre isn't known there, or user or password are refused.
    """

    def __init__(self, location: CassandraLocation, *, wall: Callable[[], float] = time.time) -> None:
        self.location = location
        self._clock = ClusterClock(wall)
        self._look: Callable[[], None] = lambda: None
        self._looked_at = time.monotonic()
        self._cluster: Cluster | None = None  # while host names are being resolved
        with self.answered("reached"):
            self._session = self._connected()
        try:
            self._compare_clocks()
        except BaseException:
            self.close()
            raise

    def prepare(self, cql: str) -> PreparedStatement:
        """A prepared statement."""
        with self.answered("asked"):
            return self._bounded(partial(self._session.prepare, cql), "cassandra-prepare")

    def prepare_all(self, cql: Mapping[str, str]) -> dict[str, PreparedStatement]:
        """Prepared statements by name; `{k}` in one is the keyspace."""
        return {name: self.prepare(text.format(k=self.location.keyspace)) for name, text in cql.items()}

    def look_by(self, look: Callable[[], None]) -> None:
        """Call `look` before a request if the last call was more than `LOOK_SECONDS` ago; it raises errors."""
        self._look, self._looked_at = look, time.monotonic()

    def rows(self, statement: Any, values: Sequence[Any] = ()) -> Iterator[Any]:
        """The rows (tuples) of a query, fetched page by page."""
        self._look_sometimes()
        with self.answered("read"):
            yield from self._session.execute(statement, values or None)

    def row(self, statement: Any, values: Sequence[Any] = ()) -> Any:
        """The first row of a query, or None."""
        self._look_sometimes()
        with self.answered("read"):
            return self._session.execute(statement, values or None).one()

    def first_rows(self, statement: PreparedStatement, values: Sequence[Sequence[Any]]) -> list[Any]:
        """The first row, or None, of a query for each of many values, run concurrently; in their order."""
        self._look_sometimes()
        with self.answered("read"):
            answers = execute_concurrent(
                self._session,
                [(statement, each) for each in values],
                concurrency=CONCURRENT_READS,
                raise_on_first_error=True,
            )
            return [answer.result_or_exc.one() for answer in answers]

    def all_rows(self, statement: PreparedStatement, values: Iterable[Sequence[Any]]) -> Iterator[Iterator[Any]]:
        """The rows of a query for each of many values, in their order, each fetched page by page: of the queries that
        are asked ahead, at most `CONCURRENT_QUERIES`, one page is held."""
        following = iter(values)
        asked: deque[ResponseFuture] = deque()
        while True:
            self._look_sometimes()
            with self.answered("read"):
                ahead = islice(following, CONCURRENT_QUERIES - len(asked))
                asked.extend(self._session.execute_async(statement, each) for each in ahead)
            if not asked:
                return
            yield self._pages(asked.popleft())

    def _pages(self, asked: ResponseFuture) -> Iterator[Any]:
        with self.answered("read"):
            yield from asked.result()

    def serial_rows(self, statement: Any, values: Sequence[Any] = ()) -> list[Any]:
        """Rows by a serial read, which sees every compare-and-set decided before."""
        self._look_sometimes()
        return self.unlooked_serial_rows(statement, values)

    def unlooked_serial_rows(self, statement: Any, values: Sequence[Any] = ()) -> list[Any]:
        """Like `serial_rows`, without the check of `look_by`."""
        with self.answered("read"):
            return list(self._session.execute(statement, values or None, execution_profile=_SERIAL))

    def write(self, statement: Any, values: Sequence[Any] = ()) -> None:
        """One write (or schema change), durable on return."""
        self._look_sometimes()
        with self.answered("written"):
            self._session.execute(statement, values or None)

    def write_all(self, statement: PreparedStatement, partitions: Sequence[Sequence[Sequence[Any]]]) -> None:
        """Write many rows, given by partition: unlogged batches within a partition, many batches concurrently."""
        self._look_sometimes()
        batches = []
        for rows in partitions:
            for start in range(0, len(rows), BATCH_ROWS):
                batch = BatchStatement(BatchType.UNLOGGED)
                for values in rows[start : start + BATCH_ROWS]:
                    batch.add(statement, values)
                batch.is_idempotent = True
                batches.append((batch, None))
        with self.answered("written"):
            execute_concurrent(self._session, batches, concurrency=CONCURRENT_BATCHES, raise_on_first_error=True)

    def compare_and_set(self, statement: Any, values: Sequence[Any]) -> bool:
        """Run a conditional write; returns whether its condition held. `Unreachable` means that the outcome is
        unknown."""
        self._look_sometimes()
        with self.answered("written"):
            return bool(self._session.execute(statement, values).was_applied)

    def conditional(
        self, batches: Sequence[Sequence[tuple[PreparedStatement, Sequence[Any]]]]
    ) -> list[ConditionalResult]:
        """Run conditional batches, each within one partition, concurrently; the results in order.

        Unanswered batches are retried for a while, so repeating one must give the same result.

        Raises:
            Unreachable: which were applied is unknown; all may be repeated.
        """
        self._look_sometimes()
        statements = []
        for rows in batches:
            batch = BatchStatement(BatchType.UNLOGGED)
            for statement, values in rows:
                batch.add(statement, values)
            statements.append((batch, None))
        answers: dict[int, ConditionalResult] = {}
        deadline = Deadline.after(2 * self.location.timeout_seconds)
        while left := [number for number in range(len(statements)) if number not in answers]:
            with self.answered("written"):
                results = execute_concurrent(
                    self._session,
                    [statements[number] for number in left],
                    concurrency=CONCURRENT_BATCHES,
                    raise_on_first_error=False,
                )
                for number, (success, result) in zip(left, results, strict=True):
                    if success:
                        answers[number] = _answer(result)
                    elif not isinstance(result, _UNANSWERED) or deadline.passed:
                        raise result
            if len(answers) > len(statements) - len(left):  # there is progress, so retrying will finish
                deadline = Deadline.after(2 * self.location.timeout_seconds)
        return [answers[number] for number in range(len(statements))]

    def timestamp(self) -> int:
        """Microseconds since 1970 by the cluster's clock, growing with each call."""
        return self._clock()

    def change_schema(self, cql: str) -> None:
        """Run a schema change and wait until all live nodes have it.

        Raises:
            Unreachable: they don't agree within the timeout.
        """
        with self.answered("written"):
            future = self._session.execute_async(cql)
            future.result()
        if not future.is_schema_agreed:
            raise Unreachable(
                f"the nodes of {self.location} don't agree on the schema",
                meaning="A node may be down, or another schema change is under way",
                remedy="Check the cluster (nodetool describecluster), then run this again",
            )

    def close(self) -> None:
        """Release all connections."""
        if self._cluster is not None:
            self._cluster.shutdown()

    def _look_sometimes(self) -> None:
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._look()
            self._looked_at = time.monotonic()  # only if nothing was wrong

    @contextmanager
    def answered(self, deed: str) -> Iterator[None]:
        """Convert the driver's errors to drkit's."""
        try:
            yield
        except (DriverException, ErrorMessage, NoHostAvailable, ConnectionException, TimeoutError) as error:
            raise self._explain(error, deed) from error

    def _bounded(self, call: Callable[[], T], name: str) -> T:
        """Run a driver call that has no timeout of its own, with one.

        Raises:
            TimeoutError: the timeout has passed.
        """
        seconds = self.location.timeout_seconds
        try:
            return bounded(Deadline.after(seconds), call, name)
        except TimeoutError as error:
            raise TimeoutError(f"no answer within {seconds:g} s") from error

    def _connected(self) -> Session:
        """Connect within the timeout, however many nodes don't answer.

        The driver limits each of its steps (a name, a node, a query), but not their sum.

        Raises:
            TimeoutError: the timeout has passed; pending resources are released as soon as the driver's step ends.
        """
        made: Session | None = None
        given_up = False
        lock = Lock()

        def connect() -> Session:
            nonlocal made
            self._cluster = cluster = self._make_cluster()
            try:
                session = cluster.connect()
            except BaseException:
                cluster.shutdown()
                raise
            with lock:
                if not given_up:
                    made = session
                    return session
            cluster.shutdown()
            raise TimeoutError

        try:
            return self._bounded(connect, "cassandra-connect")
        except TimeoutError:
            with lock:
                if made is not None:
                    return made
                given_up = True
            raise

    def _make_cluster(self) -> Cluster:
        location = self.location
        policy = TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=location.dc))

        def profile(consistency: str) -> ExecutionProfile:
            return ExecutionProfile(
                load_balancing_policy=policy,
                consistency_level=ConsistencyLevel.name_to_value[consistency],
                serial_consistency_level=ConsistencyLevel.name_to_value[location.serial_consistency],
                request_timeout=location.timeout_seconds,
                row_factory=tuple_factory,
            )

        credentials = None
        if location.user is not None:
            credentials = PlainTextAuthProvider(location.user, location.password)
        return Cluster(
            contact_points=list(location.contact_points),
            port=location.contact_points[0][1],
            auth_provider=credentials,
            ssl_context=None if location.tls is None else tls_context(location.tls),
            execution_profiles={
                EXEC_PROFILE_DEFAULT: profile(location.consistency),
                _SERIAL: profile(location.serial_consistency),
            },
            protocol_version=ProtocolVersion.V4,  # for 3.0 to 5.0; unset, the driver tries newer ones and warns
            max_schema_agreement_wait=max(10.0, location.timeout_seconds),
            # a share of the timeout each: unresponsive nodes leave time for a responsive one
            connect_timeout=location.timeout_seconds / len(location.contact_points),
            control_connection_timeout=location.timeout_seconds,
            # the default backs off up to ten minutes: too long when a store returns during a disaster
            reconnection_policy=ExponentialReconnectionPolicy(base_delay=0.5, max_delay=5.0, max_attempts=None),
            idle_heartbeat_interval=10,
            idle_heartbeat_timeout=location.timeout_seconds,
            timestamp_generator=self._clock,
            prepare_on_all_hosts=False,  # it waits for each node in turn; a node that lacks one gets it later
            monitor_reporting_enabled=False,
        )

    def _compare_clocks(self) -> None:
        before = self._clock.wall()
        (cluster_millis,) = self.row("SELECT toUnixTimestamp(now()) FROM system.local")
        self._clock.compare(cluster_millis / 1000, before, self._clock.wall())

    def _explain(self, error: Exception, deed: str) -> DrkitError:
        causes = _causes(error)
        if any(isinstance(cause, AuthenticationFailed) for cause in (error, *causes)):
            return ConfigError(
                f"{self.location} refuses the user or password of store.url", remedy="Correct the URL's user:password"
            )
        refusal = next((cause for cause in (error, *causes) if _is_of_tls(cause)), None)
        if refusal is None and any(isinstance(cause, ConnectionResetError) for cause in causes):
            refusal = _tls_alert(self.location)
        if refusal is not None:
            return _tls_refused(self.location, refusal)
        hosts = [] if self._cluster is None else self._cluster.metadata.all_hosts()
        known = {host.datacenter for host in hosts} - {None}
        if isinstance(error, NoHostAvailable) and known and self.location.dc not in known:
            return ConfigError(
                f"{self.location} has no data centre {self.location.dc!r}",
                remedy=f"Set dc= in store.url to one of: {', '.join(sorted(known))}",
            )
        what = f"{self.location} can't be {deed}: {_said(error, causes)}"
        if isinstance(error, _UNANSWERED):
            meaning = "Too few of its nodes answered in time"
            if deed == "written":
                meaning += "; the outcome of the write is unknown, it may be repeated"
            return Unreachable(
                what, meaning=meaning, remedy="Check that its nodes are up and reachable, then try again"
            )
        if isinstance(error, Unauthorized):
            return DrkitError(what, remedy="Grant the user of store.url all rights on that keyspace")
        return DrkitError(
            what,
            meaning="Cassandra refused the request: keyspace or tables were changed, or drkit has a bug",
            remedy="Run with --verbose; if the keyspace was changed by hand, use another one",
        )


def _is_of_tls(cause: BaseException) -> bool:
    # the driver reports a failed handshake as an OSError that quotes the one of `ssl`
    return isinstance(cause, ssl.SSLError) or (isinstance(cause, OSError) and "[SSL: " in str(cause))


def _tls_alert(location: CassandraLocation) -> ssl.SSLError | None:
    """Why the first node ends a TLS connection after the client's part of the handshake; None if it doesn't say.

    In TLS 1.3 a node judges the client's certificate only then (RFC 8446, section 4.4.2): a client that has sent more
    meanwhile, as the driver does, may see its connection reset instead of the alert. One that only listens sees it.
    """
    if location.tls is None:
        return None
    host, port = location.contact_points[0]
    try:
        with (
            socket.create_connection((host, port), timeout=min(location.timeout_seconds, _ALERT_SECONDS)) as plain,
            tls_context(location.tls).wrap_socket(plain, server_hostname=host) as encrypted,
        ):
            encrypted.recv(1)
    except ssl.SSLError as error:
        return error
    except OSError:
        return None
    return None


def _tls_refused(location: CassandraLocation, error: BaseException) -> DrkitError:
    said = str(error).rpartition("[SSL: ")[2].replace("]", ":", 1) or str(error)
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return ConfigError(
            f"{location}: its certificate can't be trusted: {said}",
            remedy="Set ca=PATH in store.url to the CA certificate that signed it; it must contain the node's "
            "address (else verify_host=false)",
        )
    return ConfigError(
        f"{location} refuses the TLS connection: {said}",
        remedy="Check that it speaks TLS on that port; set certificate= and key= in store.url if it requires them",
    )


def _answer(result: Any) -> ConditionalResult:
    names = result.column_names
    row = result.one()
    applied = bool(row[names.index("[applied]")])
    return ConditionalResult(applied, None if applied or "generation" not in names else row[names.index("generation")])


def _causes(error: Exception) -> list[Exception]:
    """The error of each node; the driver gives a mapping, a list, or nothing."""
    errors = error.errors if isinstance(error, NoHostAvailable) else None
    found = errors.values() if isinstance(errors, dict) else errors or ()
    return [cause for cause in found if isinstance(cause, Exception)]


def _said(error: Exception, causes: Sequence[Exception]) -> str:
    """The driver's error in one line. It names hosts and never credentials."""
    if causes:
        return "; ".join(dict.fromkeys(" ".join(str(cause).split()) or type(cause).__name__ for cause in causes))
    if isinstance(error, UnresolvableContactPoints):
        return "its host names can't be resolved"
    if isinstance(error, NoHostAvailable):
        return "no node answered"
    return " ".join(str(error).split()) or type(error).__name__
