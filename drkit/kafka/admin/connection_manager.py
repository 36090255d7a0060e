"""kafka-python's connection manager with bounded connects and the reason of a failure.

`ConnectionManager` is kafka-python's connection manager with these differences:

- a TLS handshake ends by the connection's deadline: the library's waits forever for a broker that was frozen
  after its kernel had accepted the connection;
- the bootstrap brokers are tried concurrently, recently silent ones last: the library spends all its time on the
  first that it picks; it reports when each of them refuses connections, and each response;
- a second connection starts beside a slow one: the kernel repeats a lost SYN only after a second, and the library
  waits for the first of a host's addresses before it tries the next;
- permanent errors (certificates, passwords, protocols) are raised: the library logs them and retries;
- it can go on with the connections that last where others have failed (`close_failed`, `begin_anew`), as long as a
  fresh one could: the versions of each broker's requests are asked for as it is connected;
- it tracks its sockets, so that those which the library leaves open can be closed at the end.
"""

from __future__ import annotations

import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, MutableSet
from contextlib import suppress
from typing import Any

from kafka import errors as kafka_errors
from kafka.future import Future
from kafka.net.inet import create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from drkit.kafka.protocol.broker_versions import REMEDY, lacking, what_is_lacking
from drkit.model.clock import Deadline
from drkit.model.errors import AuthenticationError, BrokerTooOld, DrkitError, Unreachable

_EXPIRED, _NOT_YET_VALID = 10, 9
_NO_ISSUER = frozenset({2, 18, 19, 20, 21})
_WRONG_HOST = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_REMEDIES = {
    _EXPIRED: "Renew the broker's certificate (or set this machine's clock)",
    _NOT_YET_VALID: "Set this machine's clock, or renew the broker's certificate",
    **dict.fromkeys(_NO_ISSUER, "Name the authority that signed it in ssl.ca.location"),
    **dict.fromkeys(
        _WRONG_HOST,
        "Use a name from the certificate in bootstrap_servers and advertised.listeners; or, if its signature is "
        "enough, set ssl.endpoint.identification.algorithm to none",
    ),
}
_NEXT_BROKER_SECONDS = 0.25
"""Without a response for so long, the next bootstrap broker is tried as well; sooner if there are many."""
_ALL_BROKERS_SECONDS = 0.5
"""After so long all of them are tried."""
_SECOND_SYN_SECONDS = 0.3
_STEP_SECONDS = 0.05
REFUSED_SECONDS = 0.25
"""A cluster counts as gone if all its bootstrap brokers refuse connections for so long (four tries)."""
_REFUSED = "ECONNREFUSED"
_OVERDUE_SECONDS = 1.0
"""So long a connection owes an answer that has failed when a call ends without one."""
_SENT_AT = 2
"""Where a request in flight has the time at which it was sent, by the monotonic clock."""
_FULL = {"max_in_flight"}
"""Why the library pauses a connection that has as many requests in flight as it takes."""
_NEXT_LOOK_SECONDS = 0.01
"""Between two looks whether a connection takes a request."""
_ASKED_ANEW = 3
"""How many of the brokers that are still connected are asked for metadata after another one has failed."""
_GRACE_SECONDS = 1.0
"""How long a call waits for the I/O thread past its deadline; only DNS lookups block that thread."""
_FRAME = re.compile(r"Invalid frame length: (\d+)\b")
_TLS_ALERT = re.compile(rb"\x15\x03[\x00-\x04].", re.DOTALL)  # type 21, version 3.n
_WORD = re.compile(rb"[\x20-\x7e]{4}")


class PermanentConnectionError(kafka_errors.KafkaError):  # type: ignore[misc]  # untyped base
    """A broker was reached, and one side refuses the connection. A retry doesn't help."""

    retriable = False

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def as_error(self, alias: str) -> AuthenticationError:
        """As an error of drkit's own."""
        return AuthenticationError(f"cluster {alias}: {self.what}", remedy=self.remedy)


class UnsupportedBroker(PermanentConnectionError):
    """A broker was reached that drkit can't work with."""

    def as_error(self, alias: str) -> BrokerTooOld:
        """As an error of drkit's own."""
        return BrokerTooOld(f"cluster {alias}: {self.what}", remedy=self.remedy)


class _BoundedTls(KafkaSSLTransport):  # type: ignore[misc]  # untyped base
    """TLS on a socket, with a deadline of the monotonic clock for the handshake (None: none). `heard`: called when the
    other side has sent something.
    """

    def __init__(
        self, net: Any, sock: Any, *, timeout_at: float | None, heard: Callable[[], None], **options: Any
    ) -> None:
        super().__init__(net, sock, **options)
        self._timeout_at = timeout_at
        self._heard = heard

    async def handshake(self) -> None:
        """As the library's, but every wait has the deadline."""
        came = False
        while True:
            try:
                self._sock.do_handshake()
            except ssl.SSLWantReadError:
                if came:
                    self._heard()
                await self._net.wait_read(self._sock, timeout_at=self._timeout_at)
                came = True
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, timeout_at=self._timeout_at)
            else:
                return


class ConnectionManager(KafkaConnectionManager):  # type: ignore[misc]  # untyped base
    """Connections of one client.

    `trouble`: why the last connection failed, or None. `silent`: host and port of brokers whose last connection attempt
    failed; it is passed to the next client, so that these are tried last. `too_old`: a broker that was reached and is
    not supported. `refused`: called when each bootstrap broker has refused all connections for `REFUSED_SECONDS`.
    `heard`: called whenever a broker has sent something; that its kernel accepted the connection doesn't count.
    `throttled`: called with the seconds for which a broker's response has this client wait (its quota, KIP-219).
    """

    def __init__(
        self,
        net: Any,
        *,
        silent: MutableSet[tuple[str, int]] | None = None,
        refused: Callable[[], None] | None = None,
        heard: Callable[[], None] = lambda: None,
        throttled: Callable[[float], None] = lambda _seconds: None,
        **options: Any,
    ) -> None:
        super().__init__(net, **options)
        self._tell_throttled = throttled
        self._tell_refused = refused
        self._heard = heard
        self._refusing: dict[tuple[str, int], float] = {}  # since when
        self.trouble: Exception | None = None
        self.too_old: UnsupportedBroker | None = None
        self.silent: MutableSet[tuple[str, int]] = set() if silent is None else silent
        self._refused: dict[Any, Exception] = {}
        self._turn: Any = None  # the last of `next_node`
        self._places: dict[Any, tuple[str, int]] = {}  # to which a connection was made last, by node id
        self._sockets: list[socket.socket] = []  # those that may be open

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = True) -> None:
        """As the library's, but the caller waits no longer than the timeout."""
        seconds = 30.0 if timeout_ms is None else timeout_ms / 1000
        self.run_within(seconds, self.bootstrap_async, timeout_ms, refresh)

    def give_up(self) -> None:
        """Abort connection attempts and requests. Any thread may call it; the client can't be used afterwards.

        Waiting threads wake at once, even if a DNS lookup blocks the I/O thread.
        """
        with suppress(Exception):  # the loop has ended, and with it the requests
            self.call_soon(self.close)
        self._net._fail_pending_waiters(kafka_errors.KafkaConnectionError("given up"))  # noqa: SLF001 - as `run_within`

    def close_failed(self, *, timed_out: bool) -> bool:
        """A request has failed, or (`timed_out`) wasn't answered: close the open connections that may be why. Returns
        whether others are open. Any thread may call it."""

        def failed(connection: Any) -> bool:
            sent = [each[_SENT_AT] for each in list(connection.in_flight_requests)[:1]]
            overdue = any(at < time.monotonic() - _OVERDUE_SECONDS for at in sent)
            return bool(connection.paused) or (timed_out and overdue)

        def close() -> None:
            for connection in list(self._conns.values()):
                if connection.connected and failed(connection):
                    connection.close(kafka_errors.KafkaConnectionError("given up"))

        lasts = any(each.connected and not failed(each) for each in list(self._conns.values()))
        if lasts:
            self.call_soon(close)
        return lasts

    async def begin_anew(self) -> None:
        """Learn from a broker whose connection has lasted where all brokers are now, and forget which of them failed.

        Raises:
            KafkaError: none of them answers.
        """
        for known in (self._backoff, self._refused, self._refusing):
            known.clear()
        self.trouble = None
        lasting = [node for node, each in self._conns.items() if each.connected]
        asked = random.sample(lasting, min(_ASKED_ANEW, len(lasting)))
        if not asked:
            raise kafka_errors.KafkaConnectionError("no connection is open")
        answered: Any = Future()
        failures: list[Exception] = []

        async def ask(node: Any) -> None:
            try:
                response = await self.send(self.cluster.metadata_request(), node)
            except kafka_errors.KafkaError as error:
                failures.append(error)
                if len(failures) == len(asked) and not answered.is_done:
                    answered.failure(error)
                return
            if not answered.is_done:
                self.cluster.update_metadata(response)
                answered.success(None)

        for node in asked:
            self.call_soon(ask, node)
        await answered
        self._follow_metadata()

    def _follow_metadata(self) -> None:
        """Close connections to brokers that have moved, and begin one to another broker: any that is connected is asked
        what is asked of any, and those that are may be cut off from the controllers."""
        loop = self.cluster._refresh_loop_future  # noqa: SLF001 - the library's ends for good by an error of another caller
        if loop is not None and loop.is_done:
            self.cluster._refresh_loop_future = None  # noqa: SLF001 - as above
            self.cluster.start_refresh_loop()
        places = {broker.node_id: (broker.host, broker.port) for broker in self.cluster.brokers()}
        for node, connection in list(self._conns.items()):
            if places.get(node, self._places.get(node)) != self._places.get(node):
                connection.close(kafka_errors.KafkaConnectionError("the broker has moved"))
        others = [node for node, place in places.items() if node not in self._conns and place not in self.silent]
        if others:
            with suppress(kafka_errors.KafkaError):
                self.get_connection(random.choice(others))  # noqa: S311 - spreads load

    def get_connection(self, node_id: Any, *args: Any, **options: Any) -> Any:
        """As the library's, but each broker is asked which requests it takes: it may have been upgraded since."""
        known = self._conns.get(node_id)
        connection = super().get_connection(node_id, *args, **options)
        if connection is not known and self.config["api_version"] is None:
            connection.broker_version_data = None
        return connection

    def open_connections(self) -> dict[Any, Any]:
        """The connections that are open, by node id."""
        return {node: each for node, each in list(self._conns.items()) if each.connected}

    async def ready(self, node_id: Any, until: Deadline) -> Any:
        """The connection to a node, once it sends a request at once. The library puts the requests for one that isn't
        made yet, or authenticates anew, in a queue, from which they are sent even if nobody waits for them any more.

        Raises:
            KafkaError: it can't be made, or isn't ready in time.
        """
        if self.closed:
            raise kafka_errors.KafkaConnectionError("connection given up")
        connection = self.get_connection(node_id)
        if not connection.init_future.succeeded():
            await self.wait_for(connection.init_future, max(1.0, until.left * 1000))
        while connection._reauth.is_reauthenticating or connection.paused == _FULL:  # noqa: SLF001 - no public name
            if not connection.connected:  # one that is lost stays full
                raise kafka_errors.KafkaConnectionError(f"the connection to broker {node_id} was lost")
            if until.passed:
                raise kafka_errors.KafkaTimeoutError(f"the connection to broker {node_id} takes no request")
            await self._net.sleep(_NEXT_LOOK_SECONDS)
        return connection

    def supports(self, request_type: Any) -> int | None:
        """The highest version of a request that client and connected brokers share; None: they share none."""
        connected = [each.broker_version_data for each in self.open_connections().values()]
        known = [data for data in connected or [self.broker_version_data] if data is not None]
        try:
            versions: list[int] = [data.api_version(request_type) for data in known]
        except kafka_errors.KafkaError:
            return None
        return min(versions, default=None)

    def close_sockets(self) -> None:
        """Close the sockets that the library has left open. Only once the I/O thread has ended: nothing uses them then.

        It leaves open the socket of a connection that is closed with unsent bytes, and of one that two threads close
        while it takes over its transport.
        """
        for left in self._sockets:
            left.close()
        self._sockets.clear()

    def run_within(self, seconds: float, step: Callable[..., Any], *given: object) -> Any:
        """Run `step` on the I/O thread and give its result.

        Raises:
            KafkaTimeoutError: it didn't end within the time, or a second beyond it if the I/O thread itself is blocked
                (the library does DNS lookups on it).
        """
        ended = threading.Event()
        stopped: dict[str, Any] = {"value": None, "exception": None}
        with self._net._pending_waiters_lock:  # noqa: SLF001 - how the library tells waiters that the loop is stopped
            self._net._pending_waiters[ended] = stopped  # noqa: SLF001 - as above
        try:
            future = self.call_soon(self._bounded, seconds, step, given)
            future.add_both(lambda _outcome: ended.set())
            if not ended.wait(seconds + _GRACE_SECONDS):
                raise kafka_errors.KafkaTimeoutError(f"no answer within {seconds:g} s, not even from a name server")
        finally:
            with self._net._pending_waiters_lock:  # noqa: SLF001 - as above
                self._net._pending_waiters.pop(ended, None)  # noqa: SLF001 - as above
        error = stopped["exception"] or future.exception
        if error is not None:
            raise error
        return future.value

    async def _bounded(self, seconds: float, step: Callable[..., Any], given: tuple[object, ...]) -> Any:
        return await self.wait_for(self.call_soon(step, *given), max(1.0, seconds * 1000))

    def least_loaded_node(self) -> Any:
        """As the library's, but it picks a silent broker only if all were silent."""
        chosen = super().least_loaded_node()
        broker = None if chosen is None else self.cluster.broker_metadata(chosen)
        if broker is None or (broker.host, broker.port) not in self.silent:
            return chosen
        answering = [
            each.node_id
            for each in self.cluster.brokers()
            if (each.host, each.port) not in self.silent and self.connection_delay(each.node_id) == 0
        ]
        return random.choice(answering) if answering else chosen  # noqa: S311 - spreads load

    def next_node(self) -> Any:
        """A node that isn't silent, each in its turn; None: there is none."""
        nodes = sorted(
            each.node_id
            for each in self.cluster.brokers()
            if (each.host, each.port) not in self.silent and self.connection_delay(each.node_id) == 0
        )
        self._turn = next(
            (node for node in nodes if self._turn is not None and node > self._turn), next(iter(nodes), None)
        )
        return self._turn

    async def _do_bootstrap(self, deadline: float | None) -> bool:
        """Connect to the bootstrap brokers, one more each moment without a response, until one returns metadata."""
        until = Deadline.after(30.0) if deadline is None else Deadline(deadline)
        while not self.closed and not until.passed:
            node = await self._first_connected(until)
            if node is None:
                continue
            try:
                await self.wait_for(self.call_soon(self.cluster.refresh_metadata, node), until.left * 1000)
            except kafka_errors.IncompatibleBrokerVersion:
                raise
            except kafka_errors.KafkaError as error:
                self.trouble = error
                self.update_backoff(node)
            else:
                if self.cluster.brokers():
                    self.reset_backoff(node)
                    self.cluster.start_refresh_loop()
                    return True
                self.update_backoff(node)
            finally:
                self._close_first(None)
        raise kafka_errors.KafkaTimeoutError(f"no broker of {self.config['bootstrap_servers']} returned metadata")

    async def _first_connected(self, until: Deadline) -> Any:
        """The node id of a bootstrap broker that is connected now; None: it paused, try again."""
        brokers = list(self.cluster.bootstrap_brokers())
        random.shuffle(brokers)
        brokers.sort(key=lambda broker: (broker.host, broker.port) in self.silent)
        pause = min(_NEXT_BROKER_SECONDS, _ALL_BROKERS_SECONDS / max(1, len(brokers) - 1))
        answered: Any = Future()
        trying: dict[Any, tuple[str, int]] = {}

        def took(node_id: Any) -> None:
            if not answered.is_done:
                answered.success(node_id)

        def lost(error: Exception, node_id: Any) -> None:
            trying.pop(node_id, None)
            if isinstance(error, kafka_errors.IncompatibleBrokerVersion) and not answered.is_done:
                answered.failure(error)

        for broker in brokers:
            if until.passed or answered.is_done or self.closed:
                break
            try:
                connection = self.get_connection(
                    broker.node_id,
                    timeout_ms=until.left * 1000,
                    pop_on_close=False,
                    refresh_metadata_on_err=False,
                    reset_backoff_on_connect=False,
                )
            except kafka_errors.NodeNotReadyError:
                continue  # it failed a moment ago
            trying[broker.node_id] = (broker.host, broker.port)
            connection.init_future.add_callback(lambda _done, node_id=broker.node_id: took(node_id))
            connection.init_future.add_errback(lambda error, node_id=broker.node_id: lost(error, node_id))
            await self._pause(connection.init_future, until.within(pause))
        while trying and not answered.is_done and not until.passed and not self.closed:
            await self._pause(answered, until.within(_STEP_SECONDS))
        if answered.is_done:
            node = await answered
            self._close_first(node)
            return node
        self.silent |= set(trying.values())
        self._close_first(None)
        await self._pause(answered, until.within(_STEP_SECONDS))
        return None

    async def _pause(self, future: Any, until: Deadline) -> None:
        try:
            await self.wait_for(future, max(1.0, until.left * 1000))
        except kafka_errors.KafkaError:
            return  # timed out, or the connection failed: the waiting thread checks that itself

    def _close_first(self, kept: Any) -> None:
        """Close the connections to the bootstrap brokers but one; in the metadata they have other node ids."""
        for broker in self.cluster.bootstrap_brokers():
            if broker.node_id != kept:
                connection = self._conns.pop(broker.node_id, None)
                if connection is not None:
                    connection.close()

    def maybe_raise_auth_failure(self, node_id: Any) -> None:
        """Called by the library before each connection: stop if a retry can't help.

        During bootstrap that is so only if all configured brokers refused.
        """
        refusal = self._refused.get(node_id)
        if refusal is not None:
            first = [broker.node_id for broker in self.cluster.bootstrap_brokers()]
            if node_id not in first or all(each in self._refused for each in first):
                raise refusal

    async def _connect(self, node: Any, conn: Any, **options: Any) -> None:
        """As the library's, then store why it failed."""
        wait: Callable[[Any], None] = conn._maybe_throttle  # noqa: SLF001 - the library tells nobody else

        def told_first(response: Any) -> None:
            delay = getattr(response, "throttle_time_ms", 0)
            if delay:
                self._tell_throttled(delay / 1000)
            wait(response)

        conn._maybe_throttle = told_first  # noqa: SLF001 - as above
        self._places[node.node_id] = (node.host, node.port)
        await super()._connect(node, conn, **options)
        future = conn.init_future
        place = (node.host, node.port)
        if not future.is_done or future.succeeded():
            self.silent.discard(place)
            self._refusing.pop(place, None)
            known = conn.broker_version_data
            lacks = [] if known is None else lacking(known.api_versions)
            if lacks:
                self.too_old = UnsupportedBroker(what_is_lacking(f"{node.host}:{node.port}", lacks), REMEDY)
            return
        error: Exception = future.exception
        refusal = _refusal(f"{node.host}:{node.port}", error, self.config["sasl_mechanism"])
        self.trouble = error if refusal is None else refusal
        if refusal is not None:
            self._refused[node.node_id] = refusal
        elif error.args:  # else drkit closed it, as another broker was faster
            self.silent.add(place)
        self._note_refusal(place, error)

    def _note_refusal(self, place: tuple[str, int], error: Exception) -> None:
        """A broker that refuses connections isn't slow: nothing listens there."""
        at = time.monotonic()
        if _REFUSED not in str(error):
            self._refusing.pop(place, None)
            return
        self._refusing.setdefault(place, at)
        since = [self._refusing.get((each.host, each.port)) for each in self.cluster.bootstrap_brokers()]
        lasted = min((0.0 if begun is None else at - begun for begun in since), default=0.0)
        if self._tell_refused is not None and lasted >= REFUSED_SECONDS:
            self._tell_refused()

    def refuse_old(self) -> None:
        """Raise `UnsupportedBroker` if a bootstrap broker is one."""
        if self.too_old is not None:
            raise self.too_old

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """As the library's, but the handshake has the deadline, and drkit reads what a broker sends just before it
        closes the connection: the library drops it, and with it the reason of a failed authentication.
        """
        sock = await self._connected_socket(node, timeout_at)
        try:
            if self.ssl_enabled:
                options = {key: value for key, value in self.config.items() if key.startswith("ssl_")}
                transport = _BoundedTls(
                    self._net, sock, host=node.host, timeout_at=timeout_at, heard=self._heard, **options
                )
            else:
                transport = KafkaTCPTransport(self._net, sock, host=node.host)
        except BaseException:
            sock.close()
            raise
        self._sockets = [each for each in self._sockets if each.fileno() >= 0]
        self._sockets.append(transport._sock)  # noqa: SLF001 - no public name; with TLS it isn't the one that connected
        try:
            await transport.handshake()
        except BaseException as error:  # also on cancellation: the library leaves its socket to the collector
            transport.close()
            if isinstance(error, kafka_errors.KafkaTimeoutError):
                raise kafka_errors.KafkaConnectionError(
                    f"{node.host}:{node.port} accepted the connection and did not continue with TLS"
                ) from None
            if isinstance(error, Exception):
                raise kafka_errors.KafkaConnectionError(f"Handshake failed: {error}") from error
            raise
        receive: Callable[[], tuple[bytes, Exception | None]] = transport._sock_recv  # noqa: SLF001 - no public name

        def data_first() -> tuple[bytes, Exception | None]:
            data, error = receive()
            if data:
                self._heard()
            return data, None if data else error  # the end is met again at the next read

        transport._sock_recv = data_first  # noqa: SLF001 - as above
        return transport

    async def _connected_socket(self, node: Any, timeout_at: float | None) -> Any:
        """A connected socket: if the first attempt is slow, a second starts, and the faster one wins."""
        made: Any = Future()
        failures: list[Exception] = []
        begun = 0

        async def attempt() -> None:
            options = {"proxy_url": self.config["proxy_url"], "timeout_at": timeout_at}
            try:
                sock = await create_connection(
                    self._net, node.host, node.port, self.config["socket_options"], **options
                )
            except Exception as error:  # noqa: BLE001 - raised below, once no attempt is left
                failures.append(error)
                if len(failures) == begun and not made.is_done:
                    made.failure(error)
                return
            if made.is_done:
                sock.close()
            else:
                made.success(sock)

        try:
            for _ in range(2):
                begun += 1
                self.call_soon(attempt)
                await self._pause(made, Deadline.after(_SECOND_SYN_SECONDS))
                if made.is_done:
                    break
            return await made
        except BaseException as error:  # nobody uses the socket now
            if not made.is_done:
                made.failure(error)
            elif made.succeeded():
                made.value.close()
            raise


def _refusal(broker: str, error: Exception, mechanism: str | None) -> Exception | None:
    """The error to raise if it is permanent; else None."""
    if isinstance(error, DrkitError):
        return None if isinstance(error, Unreachable) else error
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return PermanentConnectionError(
            f"broker {broker} doesn't offer {mechanism} on this listener",
            "Name one of the listener's sasl.enabled.mechanisms in sasl.mechanisms",
        )
    credentials: tuple[type[Exception], ...]
    credentials = (kafka_errors.SaslAuthenticationFailedError, kafka_errors.IllegalSaslStateError)
    if isinstance(error, credentials):
        return error
    frame = _FRAME.search(str(error))
    if frame is not None and (foreign := _other_protocol(broker, int(frame[1]))) is not None:
        return foreign
    causes = [each for each in (error.__context__, *error.args) if isinstance(each, ssl.SSLError)]
    return _tls_refusal(broker, causes[0]) if causes else None


def _tls_refusal(broker: str, error: ssl.SSLError) -> PermanentConnectionError | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return PermanentConnectionError(
            f"the certificate of broker {broker} can't be trusted: {error.verify_message}",
            _REMEDIES.get(error.verify_code, "Correct that certificate, or ssl.ca.location"),
        )
    reason = (error.reason or "").replace("_", " ").lower()
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return PermanentConnectionError(
            f"broker {broker} refused this client's certificate ({reason})",
            "Check ssl.certificate.location and ssl.key.location, and that the broker trusts its issuer",
        )
    if "wrong version number" in reason:
        return PermanentConnectionError(
            f"broker {broker} doesn't use TLS on this listener, but security.protocol does",
            "Correct bootstrap_servers or security.protocol",
        )
    return None  # a broker that closes the connection may be starting or stopping


def _other_protocol(broker: str, frame: int) -> PermanentConnectionError | None:
    """The first bytes of another protocol where Kafka has a response's length; None: it may be a length."""
    first = (frame & 0xFFFFFFFF).to_bytes(4, "big")
    if _TLS_ALERT.fullmatch(first):
        return PermanentConnectionError(
            f"broker {broker} uses TLS, but security.protocol doesn't", "Set security.protocol to SSL or SASL_SSL"
        )
    if not _WORD.fullmatch(first):
        return None
    name = "HTTP" if first == b"HTTP" else f"something that begins with {first.decode()!r}"
    return PermanentConnectionError(
        f"{broker} doesn't speak Kafka's protocol, but {name}", "Name the address of a broker in bootstrap_servers"
    )
