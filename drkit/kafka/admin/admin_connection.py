"""Administration requests to one cluster: every call ends within its timeout.

kafka-python's public admin methods have no timeout of their own, raise on the first partition
that fails and stop at stale metadata. So drkit sends the protocol's requests itself, through the
connection manager of a `KafkaAdminClient` (its `_manager`: no public name exists), and this module
is the only one that touches it:

- a call runs as a coroutine on the client's I/O thread; one deadline covers connecting, the handshakes and the answer,
  and after it the call sends nothing more (`StepConnection`);
- each attempt to connect runs on its own thread: a caller may stop waiting, and the attempt continues;
- drkit gives up on a cluster that may be gone after `Reachability.seconds` of silence; later calls only check the
  result of the attempt that continues;
- transient errors (`retriable` ones, lost connections, time-outs) are retried until the deadline; where a connection
  failed, it alone is replaced, and another broker is asked first where all brokers are now. The connections to other
  brokers last: that one still is open shows that its broker's process is the same (`StepConnection.session`). The
  whole client is replaced where no other connection is open, or none of them answers within a second;
- then `Unreachable`, naming the cluster by its alias. Other broker errors are `DrkitError`.
"""

from __future__ import annotations

import itertools
import re
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableSet
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.connection_manager import REFUSED_SECONDS, ConnectionManager, PermanentConnectionError
from drkit.kafka.config.client_config import kafka_python_config
from drkit.model.clock import Deadline
from drkit.model.errors import AuthenticationError, Denied, DrkitError, NotShown, Unreachable

T = TypeVar("T")
Step = Callable[["StepConnection"], Awaitable[T]]

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_SETUP_MS = 500
_CLOSE_SECONDS = 0.25
_ANEW_SECONDS = 1.0
"""How long the brokers to which a connection is still open may take to answer after another one has failed."""
_CHANGES = frozenset({0, 19, 20, 21, 30, 31, 33, 37, 44})
"""API keys of requests that change something: Produce, CreateTopics, DeleteTopics, DeleteRecords, CreateAcls,
DeleteAcls, AlterConfigs, CreatePartitions, IncrementalAlterConfigs."""
_BROKERS_TO_TRY = 3
"""How many silent brokers of a cluster one call tries in sequence."""


class _ClosingSocket(KafkaNetSocket):  # type: ignore[misc]  # untyped base
    """kafka-python leaves the socket of a failed connection attempt to the garbage collector; this closes it.

    The library selects it by the scheme of `proxy_url`, its only hook for creating sockets.
    """

    SCHEMES = ("drkit-direct",)

    async def sock_connect(
        self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None
    ) -> socket.socket:
        """Connect, or close the socket."""
        try:
            connected: socket.socket = await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
        return connected


class Reachability:
    """How long to wait for a connection to a cluster that may be gone; shared by all connections to it.

    A cluster counts as gone if none of its brokers has sent anything for `seconds` (a kernel that accepts connections
    doesn't count), if none has completed the handshake within `most_seconds`, or if each configured broker has refused
    all connections for `REFUSED_SECONDS`: nothing listens there. The attempt itself continues, so later calls find a
    cluster that is slow or comes back.

    Args:
        seconds: the longest silence, from the begin of the first attempt.
        glance_seconds: the same for later attempts, after one has failed.
        most_seconds: from the begin of an attempt; None: three times the longest silence.
    """

    def __init__(self, seconds: float, glance_seconds: float = 0.5, most_seconds: float | None = None) -> None:
        self._seconds = seconds
        self._glance_seconds = min(seconds, glance_seconds)
        self._most_seconds = 3 * seconds if most_seconds is None else most_seconds
        self.gone = False
        self.left_out: NotShown | None = None
        """Why the cluster counts as gone, whatever answers at its address (`Clusters.leave_out`)."""

    def patience(self) -> _Patience:
        """For an attempt that begins now."""
        return _Patience(self.seconds, self._most_seconds)

    @property
    def seconds(self) -> float:
        """For an attempt now."""
        return self._glance_seconds if self.gone else self._seconds


class _Patience:
    """How long to wait for one connection's attempts: while its brokers send something, up to a limit.

    `seconds`: how long they may be silent; `most_seconds`: the limit.
    """

    def __init__(self, seconds: float, most_seconds: float) -> None:
        self._seconds = seconds
        self._begun = time.monotonic()
        self._last = self._begun + max(seconds, most_seconds)
        self._until = self._begun + seconds

    def heard(self, delay_seconds: float = 0.0) -> None:
        """A broker has said something, now; the next request is sent only after the delay."""
        self._until = min(self._last, max(self._until, time.monotonic() + delay_seconds + self._seconds))

    @property
    def until(self) -> Deadline:
        """When it ends, as far as is known now."""
        return Deadline(self._until)

    @property
    def spent(self) -> float:
        """Seconds from its begin until it ends."""
        return round(self._until - self._begun, 1)


class _Gone(Exception):
    """No broker could be connected to within these seconds. Has the reason if known."""

    def __init__(self, why: str, seconds: float) -> None:
        super().__init__(why)
        self.seconds = seconds


class _Attempt:
    """An attempt to connect, which continues even if nobody waits for it.

    `patience`: how long to wait if the cluster may be gone; it may grow while a thread waits. `ended`: there is a
    client, or an error, or the connection was closed; `told`: that, or each configured broker refuses connections.
    """

    def __init__(self, patience: _Patience | None) -> None:
        self.patience = patience
        self.ended = threading.Event()
        self.told = threading.Event()
        self.client: KafkaAdminClient | None = None
        self.error: BaseException | None = None
        self.managers: list[ConnectionManager] = []

    @property
    def trouble(self) -> str:
        """The latest known reason for the delay."""
        found = [manager.trouble for manager in self.managers if manager.trouble is not None]
        return str(found[-1]) if found else "no broker has answered yet"

    def heard(self, delay_seconds: float = 0.0) -> None:
        """As `_Patience.heard`."""
        if self.patience is not None:
            self.patience.heard(delay_seconds)

    def wait(self, deadline: Deadline) -> bool:
        """Wait until it has ended or the patience is over; returns whether the patience is over."""
        if self.patience is None:
            self.ended.wait(deadline.left)
            return False
        while not self.told.is_set():
            until = self.patience.until
            if min(deadline, until).passed:
                return until.passed
            self.told.wait(min(deadline, until).left)
        return self.patience.until.passed

    def end(self, client: KafkaAdminClient | None, error: BaseException | None) -> None:
        """Wake the waiting threads."""
        if not self.ended.is_set():
            self.client, self.error = client, error
            self.ended.set()
            self.told.set()


class Permission(Protocol):
    """Whether an `AdminConnection` may change the cluster now. A process can be stopped (SIGSTOP, a hung machine) and
    wake after another has taken over: it must not send its pending changes then.
    """

    def renew(self) -> None:
        """Obtain the permission again; blocks. It is valid for a moment from then on.

        Raises:
            DrkitError: the permission was refused.
        """

    def holds(self) -> bool:
        """Whether it is still valid. Sends no request."""


class PermissionLapsed(Exception):
    """Raised within a step that would change the cluster; `call` renews the permission and tries the step again."""


class RetryLater(Exception):
    """Raised by a step whose answer was transient: try the step again until the deadline."""


class StepOver(BaseException):
    """Raised within a step that would send another request after its attempt has ended. Not an `Exception`: a step
    that continues after an error must not continue after this."""


class _Sessions:
    """A number for each connection that was ever asked for."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._next = itertools.count()

    def number(self, connection: Any) -> int:
        """Of this connection."""
        return self._known.setdefault(connection, next(self._next))


class StepConnection:
    """What one attempt of a step sends requests by, on the client's I/O thread.

    Its attempt's end is its own: no request is begun after the deadline, or once the attempt has failed. kafka-python
    doesn't cancel a coroutine that nobody awaits any more, and the client may last; whoever was told that a change got
    no answer undoes it, and must not see it made after that. A request that waits for its connection isn't begun, so
    none is left in a queue of the library's.

    Args:
        owner: whose call it is.
        client: by which this attempt sends; it may be replaced meanwhile.
        sessions: the numbers of the owner's connections.
        until: the attempt's deadline.
    """

    def __init__(self, owner: AdminConnection, client: KafkaAdminClient, sessions: _Sessions, until: Deadline) -> None:
        self.alias = owner.alias
        self.timeout_seconds = owner.timeout_seconds
        self._permission = owner.permission
        self._manager: ConnectionManager = client._manager  # noqa: SLF001 - see the module docstring
        self._sessions = sessions
        self._until = until
        self._ended = False

    def end(self) -> None:
        """Nothing more is sent. Any thread may call it."""
        self._ended = True

    async def send(
        self,
        request: Any,
        node_id: int | None = None,
        *,
        timeout_seconds: float | None = None,
        sent: Callable[[], None] = lambda: None,
    ) -> Any:
        """Send one protocol request; None: to any broker.

        `timeout_seconds` bounds this one request, to leave time for others after it. `sent` is called once the request
        may reach a broker: one that fails before is never carried out. The client knows the brokers that
        were up when it connected and refreshes its metadata only every five minutes, so an unknown broker triggers a
        refresh.
        """
        until = self._until if timeout_seconds is None else self._until.within(timeout_seconds)
        node = self._manager.least_loaded_node() if node_id is None else node_id
        try:
            begun = await self._begun(request, node, until, sent)
        except kafka_errors.UnknownBrokerIdError:
            await self._manager.cluster.refresh_metadata()
            begun = await self._begun(request, node, until, sent)
        return await (begun if timeout_seconds is None else self._manager.wait_for(begun, until.left * 1000))

    async def begin(self, request: Any, node_id: int) -> Awaitable[Any]:
        """As `send`, but returns once it is sent; awaiting what it returns gives the response. At most four at a time
        to one broker."""
        try:
            begun: Awaitable[Any] = await self._begun(request, node_id, self._until)
        except kafka_errors.UnknownBrokerIdError:
            self._manager.cluster.request_update()  # the retry finds it
            raise
        return begun

    async def _begun(
        self, request: Any, node_id: int | None, until: Deadline, sent: Callable[[], None] = lambda: None
    ) -> Any:
        self._check_over()
        connection = await self._manager.ready(node_id, until)
        self._check_over()
        if self._permission is not None and request.API_KEY in _CHANGES and not self._permission.holds():
            raise PermissionLapsed
        takes = connection.connected and not connection.paused  # else the library refuses it
        begun = connection.send_request(request)
        if takes:
            sent()
        return begun

    def _check_over(self) -> None:
        if self._ended or self._until.passed:
            raise StepOver

    def next_broker(self) -> int | None:
        """A broker to ask what any may answer, each in its turn; None: none can be asked now."""
        node: int | None = self._manager.next_node()
        return node

    def session(self, node_id: int) -> int | None:
        """Which connection to this broker is open: another number after each reconnect, and so for another process of
        the broker. None: none is."""
        connection = self._manager.open_connections().get(node_id)
        return None if connection is None else self._sessions.number(connection)

    def connected_nodes(self) -> set[int]:
        """The brokers to which a connection is open: one that is cut off from the controllers may be in no other one's
        list any more."""
        return {node for node in self._manager.open_connections() if isinstance(node, int)}

    def supports(self, request_type: Any) -> int | None:
        """As `AdminConnection.supports`."""
        return self._manager.supports(request_type)

    async def gather(self, steps: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Run coroutines concurrently: a silent broker doesn't delay the others.

        Raises:
            KafkaError: the first error of any of them, once all have ended.
        """
        running = [self._manager.call_soon(step) for step in steps]
        failure: Exception | None = None
        for each in running:
            try:
                await each
            except Exception as error:  # noqa: BLE001 - raised below, once nothing of this step runs any more
                failure = failure or error
        if failure is not None:
            raise failure


class AdminConnection:
    """Requests to one cluster. Connects at the first call; may be shared by threads.

    Args:
        alias: the cluster's name in messages.
        cluster: how to reach it.
        timeout_seconds: the bound of every call: connecting, handshakes, answer and repetitions.
        reach: how long to try to connect if the cluster may be gone.
    """

    def __init__(
        self, alias: str, cluster: ClusterConfig, *, timeout_seconds: float = 10.0, reach: Reachability | None = None
    ) -> None:
        self.alias = alias
        self.timeout_seconds = timeout_seconds
        self._reach = reach
        self._cluster = cluster
        self._config = kafka_python_config(cluster)
        self._lock = threading.Lock()
        self._client: KafkaAdminClient | None = None
        self._doubted: KafkaAdminClient | None = None  # the client of which a connection failed, until a broker answers
        self._attempt: _Attempt | None = None
        self._patience: _Patience | None = None  # with the attempts since the last connection
        self._silent: set[tuple[str, int]] = set()
        self._throttled_until: float | None = None  # by the monotonic clock; as the last throttled response said
        self._closed = threading.Event()
        self._sessions = _Sessions()
        self.permission: Permission | None = None
        """The permission that every change of the cluster needs, if any."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def principal(self) -> str | None:
        """The principal of drkit on this cluster, as its ACLs name it; None if only the cluster knows it (TLS)."""
        protocol = self._config["security_protocol"]
        if protocol == "PLAINTEXT":
            return "User:ANONYMOUS"
        user = self._config.get("sasl_plain_username")
        return f"User:{user}" if user else None

    def another(self) -> AdminConnection:
        """A second connection to the same cluster, for requests that a broker is to answer concurrently."""
        made = AdminConnection(self.alias, self._cluster, timeout_seconds=self.timeout_seconds, reach=self._reach)
        made.permission = self.permission
        return made

    def close(self) -> None:
        """Close the connection: waiting calls end. The object can't be used afterwards."""
        with self._lock:
            self._closed.set()
            client, self._client = self._client, None
            attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.end(None, self._was_closed())
            for manager in attempt.managers:
                manager.give_up()
        if client is not None:
            client._manager.give_up()  # noqa: SLF001 - see the module docstring
            _discard(client)

    def connect_soon(self) -> None:
        """Begin to connect unless connected or connecting: the first call then waits less."""
        with self._lock:
            if self._client is None and self._attempt is None and not self._closed.is_set():
                self._begun()

    def _was_closed(self) -> DrkitError:
        return DrkitError(f"the connection to cluster {self.alias} was closed")

    def call(self, what: str, step: Step[T], *, timeout_seconds: float | None = None) -> T:
        """Run `step` on the client's I/O thread; retry it while its failure is transient.

        Args:
            what: what is attempted, for messages: "list topics".
            step: a coroutine function; it may run several times.
            timeout_seconds: the bound, if not the object's own.

        Raises:
            Unreachable: no answer within the timeout.
            Denied: the cluster denied it (authorization).
            AuthenticationError: its certificate can't be trusted, or it rejected drkit's certificate or credentials.
            DrkitError: the cluster answered with another error.
        """
        bound = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = Deadline.after(bound)
        pause = _FIRST_PAUSE
        last = "no answer"
        while True:
            if deadline.passed:
                raise self._silence(what, bound, last)
            client: KafkaAdminClient | None = None
            try:
                client = self._connected(deadline)
                return self._bounded(client, step, deadline)
            except RetryLater as error:
                last = str(error)
            except _Gone as error:
                raise self._silence(what, min(bound, error.seconds), str(error)) from None
            except kafka_errors.KafkaError as error:
                if client is not None and _connection_failed(error):
                    self._replace_failed(client, error)
                permanent = self._permanent(what, error)
                if permanent is not None:
                    raise permanent from None
                last = str(error) or type(error).__name__
            self._closed.wait(min(pause, deadline.left))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _note_throttled(self, attempt: _Attempt, seconds: float) -> None:
        self._throttled_until = max(self._throttled_until or 0.0, time.monotonic() + seconds)
        attempt.heard(seconds)

    def _silence(self, what: str, seconds: float, last: str) -> Unreachable:
        if self._throttled_until is not None and self._throttled_until > time.monotonic() - seconds:
            return Unreachable(
                f"cluster {self.alias} throttles drkit by a quota, and did not answer within {seconds:g} s, when "
                f"drkit wanted to {what}",
                meaning="The cluster is up: its brokers have this client wait before each request",
                remedy="Raise the quota of drkit's user or client id (kafka-configs.sh --describe --entity-type users "
                "shows those of users, and with clients those of client ids), or give more seconds (--timeout)",
            )
        return Unreachable(
            f"cluster {self.alias} did not answer within {seconds:g} s, when drkit wanted to {what}",
            meaning=f"The last error was: {_said_once(last)}",
            remedy="Check that its brokers run and that bootstrap_servers is right "
            f"({','.join(self._config['bootstrap_servers'])}); trying again may work",
        )

    def renew_permission(self) -> None:
        """Obtain the permission anew, however recent it is (if one is needed): before what can't be undone. Blocks.

        Raises:
            DrkitError: as `Permission.renew`.
        """
        if self.permission is not None:
            self.permission.renew()

    def supports(self, request_type: Any) -> int | None:
        """The highest version of a request that brokers and client share; None: they share none."""
        client = self._client
        if client is None:
            return None
        version: int | None = client._manager.supports(request_type)  # noqa: SLF001 - see the module docstring
        return version

    def _bounded(self, client: KafkaAdminClient, step: Step[T], deadline: Deadline) -> T:
        attempt = StepConnection(self, client, self._sessions, deadline)
        try:
            outcome: T = client._manager.run_within(deadline.left, step, attempt)  # noqa: SLF001 - see the module docstring
        except PermissionLapsed:
            self.renew_permission()
            raise RetryLater("the permission to change it lapsed over and over") from None
        except StepOver:
            raise kafka_errors.KafkaTimeoutError("no answer in time") from None
        except RuntimeError as error:  # the I/O loop was closed by another thread meanwhile
            raise kafka_errors.KafkaConnectionError(str(error)) from error
        finally:
            attempt.end()
        return outcome

    def _connected(self, deadline: Deadline) -> KafkaAdminClient:
        """The client, once it is connected.

        Raises:
            _Gone: the cluster may be gone, and its patience is over.
            KafkaError: the attempt failed, or hasn't ended by the deadline.
            DrkitError: the connection was closed.
        """
        with self._lock:
            if self._closed.is_set():
                raise self._was_closed()
            client, doubted = self._client, self._doubted
            attempt = None if client is not None else self._attempt or self._begun()
        if attempt is None:
            if client is doubted and not self._answers(client, deadline):
                return self._connected(deadline)
            return client
        lost_patience = attempt.wait(deadline)
        if attempt.client is not None:
            return attempt.client
        if attempt.error is not None and not (lost_patience and _transient(attempt)):
            raise attempt.error
        if attempt.patience is None:
            raise kafka_errors.KafkaConnectionError(attempt.trouble)
        raise self._gone(attempt, attempt.patience)

    def _gone(self, attempt: _Attempt, patience: _Patience) -> _Gone:
        if self._reach is not None:
            self._reach.gone = True
        refused = attempt.told.is_set() and not attempt.ended.is_set()
        return _Gone(attempt.trouble, REFUSED_SECONDS if refused else patience.spent)

    def _begun(self) -> _Attempt:
        """A new attempt; called under the lock. It has the patience that earlier attempts left."""
        if self._reach is not None and (self._patience is None or self._patience.until.passed):
            self._patience = self._reach.patience()
        attempt = self._attempt = _Attempt(self._patience)
        threading.Thread(target=self._connect, args=(attempt,), name=f"drkit-connect-{self.alias}", daemon=True).start()
        return attempt

    def _connect(self, attempt: _Attempt) -> None:
        """On a thread of its own."""
        client: KafkaAdminClient | None = None
        failure: BaseException | None = None
        try:
            throttled = partial(self._note_throttled, attempt)
            client = _connect(self._config, self._silent, attempt, throttled, timeout_seconds=self.timeout_seconds)
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            failure = error
        with self._lock:
            wanted = self._attempt is attempt
            if wanted:
                self._attempt = None
            if wanted and client is not None:
                self._client, self._patience = client, None
                if self._reach is not None:
                    self._reach.gone = False
            elif wanted and failure is not None and _refused(failure):
                self._patience = None  # a broker answered: the next attempt has full patience
        attempt.end(client if wanted else None, failure)
        if client is not None and not wanted:
            _discard(client)

    def _replace_failed(self, client: KafkaAdminClient, error: kafka_errors.KafkaError) -> None:
        """Close the connections that failed, to be made anew; the others are asked first."""
        if client._manager.close_failed(timed_out=isinstance(error, _TIMED_OUT)):  # noqa: SLF001 - see the module docstring
            with self._lock:
                self._doubted = self._client
        else:
            self._drop(client)

    def _answers(self, client: KafkaAdminClient, deadline: Deadline) -> bool:
        """Whether a broker that is still connected says where all brokers are now; else the client is dropped."""
        seconds = deadline.within(_ANEW_SECONDS).left
        try:
            client._manager.run_within(seconds, client._manager.begin_anew)  # noqa: SLF001 - see the module docstring
        except (kafka_errors.KafkaError, RuntimeError):
            self._drop(client)
            return False
        with self._lock:
            if self._doubted is client:
                self._doubted = None
        return True

    def _drop(self, client: KafkaAdminClient) -> None:
        with self._lock:
            if self._client is client:
                self._client = self._doubted = None
        _discard(client)

    def _permanent(self, what: str, error: kafka_errors.KafkaError) -> DrkitError | None:
        """The error to raise at once, or None if a retry may succeed."""
        if isinstance(error, PermanentConnectionError):
            return error.as_error(self.alias)
        if isinstance(error, kafka_errors.SaslAuthenticationFailedError | kafka_errors.IllegalSaslStateError):
            return AuthenticationError(
                f"cluster {self.alias} rejected the credentials",
                remedy="Check sasl.mechanisms of that cluster, and its user and password or its OAuth client",
            )
        if isinstance(error, kafka_errors.AuthorizationError):
            return Denied(
                f"cluster {self.alias} denied it: {what} ({type(error).__name__})",
                remedy="Grant drkit's principal that operation on that cluster",
            )
        if error.retriable or isinstance(error, kafka_errors.UnknownBrokerIdError | kafka_errors.InvalidReceiveError):
            return None
        return DrkitError(f"cluster {self.alias} answered {describe(type(error))}: {what}")


class ClusterClient:
    """A client of one cluster over an `AdminConnection`: connects at the first call, is closed by `with`."""

    def __init__(
        self, alias: str, cluster: ClusterConfig, *, timeout_seconds: float = 10.0, reach: Reachability | None = None
    ) -> None:
        self.alias = alias
        self.timeout_seconds = timeout_seconds
        self.cluster = cluster
        self._connection = AdminConnection(alias, cluster, timeout_seconds=timeout_seconds, reach=reach)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def principal(self) -> str | None:
        """The principal of drkit on this cluster, as its ACLs name it; None if only the cluster knows it."""
        return self._connection.principal

    def change_only_with(self, permission: Permission) -> None:
        """Send changes of the cluster only while this permission is valid."""
        self._connection.permission = permission

    def connect_soon(self) -> None:
        """Begin to connect, without waiting."""
        self._connection.connect_soon()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def error_class(code: int) -> type[kafka_errors.KafkaError]:
    """kafka-python's error class of a protocol error code (`NoError` for 0)."""
    found: type[kafka_errors.KafkaError] = kafka_errors.for_code(code)
    return found


UNREADABLE = frozenset({kafka_errors.CorruptRecordError, kafka_errors.InvalidRecordError, kafka_errors.UnknownError})
"""How a broker answers that can't read its own log at a place: a fact about that partition, not about the cluster."""


def describe(error: type[kafka_errors.KafkaError]) -> str:
    """Kafka's own name of an error (``GROUP_AUTHORIZATION_FAILED``), else the class's."""
    return getattr(error, "message", None) or error.__name__


def _said_once(text: str) -> str:
    """An error's text without the name of its class in front twice, as a wrapped one of kafka-python has it."""
    return re.sub(r"^(\w+: )\1+", r"\1", text)


def check(code: int, context: str = "") -> None:
    """Raise the error of a response's error code; nothing for 0. `call` retries retriable ones."""
    if code:
        raise error_class(code)(context)


def _refused(error: BaseException) -> bool:
    """Whether a broker answered, and broker or client refuses the other."""
    return isinstance(
        error,
        PermanentConnectionError | kafka_errors.SaslAuthenticationFailedError | kafka_errors.IllegalSaslStateError,
    )


def _transient(attempt: _Attempt) -> bool:
    """Whether an attempt failed as if the cluster were gone."""
    error = attempt.error
    lasting = error is not None and (_refused(error) or isinstance(error, kafka_errors.AuthorizationError))
    return isinstance(error, kafka_errors.KafkaError) and not lasting


_TIMED_OUT = (kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError)


def _connection_failed(error: kafka_errors.KafkaError) -> bool:
    return not isinstance(error, kafka_errors.BrokerResponseError) or isinstance(
        error,
        kafka_errors.RequestTimedOutError
        | kafka_errors.SaslAuthenticationFailedError
        | kafka_errors.IllegalSaslStateError,
    )


def _connect(
    config: dict[str, Any],
    silent: MutableSet[tuple[str, int]],
    attempt: _Attempt,
    throttled: Callable[[float], None],
    *,
    timeout_seconds: float,
) -> KafkaAdminClient:
    """A bootstrapped client. A failed attempt leaves no thread behind, as kafka-python's own would.

    `timeout_seconds`: the bound of the attempt, and of a request once it is connected.
    """
    timeout_ms = max(1, int(timeout_seconds * 1000))
    built: list[tuple[KafkaNetClient, ConnectionManager]] = []

    def build(**options: Any) -> KafkaNetClient:
        loop = NetworkSelector(**options)
        setup_ms = max(_SETUP_MS, timeout_ms // _BROKERS_TO_TRY)
        manager = ConnectionManager(
            loop,
            silent=silent,
            refused=attempt.told.set,
            heard=attempt.heard,
            throttled=throttled,
            socket_connection_setup_timeout_ms=setup_ms,
            **options,
        )
        client = KafkaNetClient(net=loop, manager=manager, **options)
        built.append((client, manager))
        attempt.managers.append(manager)
        if attempt.ended.is_set():  # the connection was closed meanwhile
            manager.give_up()
        return client

    tokens = config.get("sasl_oauth_token_provider")
    if tokens is not None:  # not on the I/O thread, where other calls would wait too
        try:
            tokens.token()
        except Unreachable as error:
            raise RetryLater(str(error)) from None
    options = {
        **config,
        "request_timeout_ms": min(config.get("request_timeout_ms", timeout_ms), timeout_ms),
        "bootstrap_timeout_ms": timeout_ms,
        "reconnect_backoff_max_ms": 500,
        "kafka_client": build,
        "proxy_url": f"{_ClosingSocket.SCHEMES[0]}://",
    }
    try:
        made = KafkaAdminClient(**options)
        built[-1][1].refuse_old()
    except BaseException as error:
        for client, manager in built:
            _in_background(partial(_stop, client), manager)
            if isinstance(error, kafka_errors.KafkaTimeoutError) and manager.trouble is not None:
                raise kafka_errors.KafkaConnectionError(manager.trouble) from None  # says more than "no broker"
        raise
    return made


def _stop(net: KafkaNetClient) -> None:
    net._manager.close()  # noqa: SLF001 - see the module docstring
    net._net.stop()  # noqa: SLF001 - as above
    net.close()


def _discard(client: KafkaAdminClient) -> None:
    _in_background(client.close, client._manager)  # noqa: SLF001 - see the module docstring


def _in_background(close: Callable[[], object], manager: ConnectionManager) -> None:
    """Close without waiting for long: kafka-python joins its I/O thread, which a dead broker may hold."""
    loop = manager._net  # noqa: SLF001 - see the module docstring
    io_thread: threading.Thread | None = loop._io_thread  # noqa: SLF001 - as above; the loop forgets it as it ends

    def quietly() -> None:
        for each in (close, loop.close):  # the loop ends even if closing failed
            with suppress(kafka_errors.KafkaError, RuntimeError, OSError, ValueError, KeyError):
                each()
        if io_thread is None or not io_thread.is_alive():
            manager.close_sockets()

    closer = threading.Thread(target=quietly, name="drkit-close-kafka", daemon=True)
    closer.start()
    closer.join(_CLOSE_SECONDS)
