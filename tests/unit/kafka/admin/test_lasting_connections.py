"""A connection that fails is replaced alone: that another one is still open shows that its broker's process is the
same. A call that has failed sends nothing over those that last. Brokers of the test answer which requests they take,
and metadata.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse

from drkit.config import ClusterConfig
from drkit.kafka.admin.admin_connection import AdminConnection, StepConnection
from drkit.kafka.admin.cluster_description import sessions
from drkit.kafka.admin.topic_requests import absent_everywhere
from drkit.model.errors import Unreachable
from tests.support.wait import wait_until

FETCH, METADATA, API_VERSIONS, MANY = 1, 3, 18, 90
"""API keys, and one more than the greatest of them."""


NAME = "of the step"
"""The topic that the requests of `many` ask for, by which a broker of the test knows them."""


class FakeBroker:
    """A broker that takes any number of connections.

    `silent`: it reads on, and answers nothing. `asked`: how many requests for the topic `NAME` it has read;
    `patience`: how many of these it answers before it waits for `released`. `greets`: whether it says at once which
    requests it takes, else it waits, too.
    """

    def __init__(self, node: int, stack: ExitStack) -> None:
        self.node = node
        self.peers: Sequence[FakeBroker] = ()
        self.silent = False
        self.fetch_version = 17
        self.asked = 0
        self.patience = MANY
        self.greets = True
        self.released = threading.Event()
        self._connections: list[socket.socket] = []
        self._server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        stack.callback(self.crash)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def crash(self) -> None:
        """Nothing listens there any more, and its connections are reset."""
        for each in (self._server, *self._connections):
            with closing(each):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def come_back(self, stack: ExitStack) -> None:
        """As another process, at the same address."""
        self._connections = []
        self._server = stack.enter_context(socket.create_server(("127.0.0.1", self.port), backlog=64))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        server = self._server
        while True:
            try:
                connection = server.accept()[0]
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                request = stream.read(int.from_bytes(size, "big"))
                if self.silent:
                    continue
                key = int.from_bytes(request[:2], "big")
                self.asked += NAME.encode() in request
                if self.asked > self.patience or (key == API_VERSIONS and not self.greets):
                    self.released.wait(30)
                try:
                    connection.sendall(self._answer(request))
                except OSError:
                    return

    def _answer(self, request: bytes) -> bytes:
        key, version, number = (int.from_bytes(request[a:b], "big") for a, b in ((0, 2), (2, 4), (4, 8)))
        if key == API_VERSIONS:
            takes = [
                ApiVersionsResponse.ApiVersion(api_key=each, min_version=0, max_version=20) for each in range(MANY)
            ]
            takes[FETCH].max_version = self.fetch_version
            answer = ApiVersionsResponse(error_code=0, api_keys=takes, throttle_time_ms=0)
        else:
            assert key == METADATA
            listed = [
                MetadataResponse.MetadataResponseBroker(each.node, "127.0.0.1", each.port, None)
                for each in (self, *self.peers)
            ]
            answer = MetadataResponse(
                throttle_time_ms=0, brokers=listed, cluster_id="c", controller_id=1, topics=[], error_code=0
            )
        answer.API_VERSION = version
        answer.with_header(number)
        framed: bytes = answer.encode(header=True, framed=True)
        return framed


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def brokers(stack: ExitStack) -> list[FakeBroker]:
    """Three of one cluster; the clients of the test know the first as they begin."""
    made = [FakeBroker(node, stack) for node in (1, 2, 3)]
    for each in made:
        each.peers = [other for other in made if other is not each]
    return made


@pytest.fixture
def connection(brokers: list[FakeBroker], stack: ExitStack) -> AdminConnection:
    """Connected to all three."""
    cluster = ClusterConfig(bootstrap_servers=brokers[0].address)
    made = stack.enter_context(AdminConnection("old", cluster, timeout_seconds=3.0))
    wait_until(lambda: len(sessions(made)) == 3, what="connections to all")
    return made


def meet(connection: AdminConnection) -> None:
    """Ask each broker: one doesn't answer."""
    with pytest.raises(Unreachable):
        absent_everywhere(connection, {"any"})


@pytest.mark.parametrize("failing", [1, 3], ids=["the one that is configured", "another"])
@pytest.mark.parametrize("fault", ["crash", "silence"])
def test_the_connections_to_other_brokers_last(
    brokers: list[FakeBroker], connection: AdminConnection, stack: ExitStack, failing: int, fault: str
) -> None:
    before = sessions(connection)
    broker = brokers[failing - 1]
    if fault == "crash":
        broker.crash()
    broker.silent = True
    meet(connection)
    others = {node: number for node, number in before.items() if node != failing}
    assert sessions(connection) == others
    broker.silent = False
    if fault == "crash":
        broker.come_back(stack)
    wait_until(lambda: failing in sessions(connection), what="a connection to it")
    after = sessions(connection)
    assert {node: after[node] for node in others} == others
    assert after[failing] != before[failing]


def test_where_none_lasts_all_is_begun_anew(
    brokers: list[FakeBroker], connection: AdminConnection, stack: ExitStack
) -> None:
    before = sessions(connection)
    for broker in brokers:
        broker.crash()
    meet(connection)
    for broker in brokers:
        broker.come_back(stack)
    wait_until(lambda: len(sessions(connection)) == 3, what="connections to all")
    assert before.items().isdisjoint(sessions(connection).items())


def test_brokers_that_all_fall_silent_are_not_asked_over_their_old_connections_for_ever(
    brokers: list[FakeBroker], connection: AdminConnection
) -> None:
    for broker in brokers:
        broker.silent = True
    meet(connection)
    meet(connection)
    for broker in brokers:
        broker.silent = False
    wait_until(lambda: len(sessions(connection)) == 3, what="connections to all")


def test_a_broker_that_moved_is_found_where_it_is(
    brokers: list[FakeBroker], connection: AdminConnection, stack: ExitStack
) -> None:
    before = sessions(connection)
    brokers[2].crash()
    moved = FakeBroker(3, stack)
    moved.peers = brokers[:2]
    for each, other in ((brokers[0], brokers[1]), (brokers[1], brokers[0])):
        each.peers = (other, moved)
    assert absent_everywhere(connection, {"any"}) == {"any"}
    after = sessions(connection)
    assert {node: after[node] for node in (1, 2)} == {node: before[node] for node in (1, 2)}
    assert after[3] != before[3]


def test_brokers_that_were_upgraded_one_by_one_are_asked_what_they_take_now(
    brokers: list[FakeBroker], connection: AdminConnection, stack: ExitStack
) -> None:

    newest = connection.supports(FetchRequest)
    assert newest == 17
    for broker in brokers:
        broker.crash()
        broker.fetch_version = 12
        broker.come_back(stack)
        wait_until(lambda: len(sessions(connection)) == 3, what="connections to all")
        assert connection.supports(FetchRequest) == 12, "what all of them take"


async def many(each: StepConnection) -> None:
    """A step of many requests, as one that changes many topics."""
    topic = MetadataRequest.MetadataRequestTopic(name=NAME)
    for _ in range(MANY):
        await each.send(MetadataRequest(topics=[topic], allow_auto_topic_creation=False), 3)


def test_a_call_that_has_failed_sends_nothing_more(brokers: list[FakeBroker], connection: AdminConnection) -> None:
    """Its last request has waited for less than what has a connection closed."""
    broker = brokers[2]
    broker.patience = 2
    before = sessions(connection)
    with pytest.raises(Unreachable):
        connection.call("change many topics", many, timeout_seconds=0.5)
    broker.released.set()
    assert sessions(connection) == before, "the broker has answered, over the same connection"
    assert sessions(connection) == before
    assert broker.asked == 3, "two that it answered, and the one that it did not"


def test_what_waits_for_its_connection_is_not_sent_once_its_call_has_failed(
    brokers: list[FakeBroker], connection: AdminConnection, stack: ExitStack
) -> None:
    broker = brokers[2]
    broker.crash()
    broker.greets = False
    broker.come_back(stack)
    with pytest.raises(Unreachable):
        connection.call("change many topics", many, timeout_seconds=0.5)
    broker.greets = True
    broker.released.set()
    wait_until(lambda: 3 in sessions(connection), what="a connection to it")
    assert broker.asked == 0


def test_a_call_that_is_begun_only_after_it_has_failed_sends_nothing(
    brokers: list[FakeBroker], connection: AdminConnection
) -> None:
    """As where a name server keeps the thread that sends, or the process stood still."""
    goes_on = threading.Event()

    async def late(each: StepConnection) -> None:
        goes_on.wait(30)
        await many(each)

    with pytest.raises(Unreachable):
        connection.call("change many topics", late, timeout_seconds=0.1)
    goes_on.set()
    assert len(sessions(connection)) == 3
    assert brokers[2].asked == 0


def test_a_step_that_goes_on_after_errors_does_not_go_on_after_its_end(
    brokers: list[FakeBroker], connection: AdminConnection
) -> None:
    broker = brokers[2]
    broker.patience = 0

    async def unmoved(each: StepConnection) -> None:
        for _ in range(MANY):
            with suppress(Exception):
                await many(each)

    async def both(each: StepConnection) -> None:
        await each.gather(unmoved(each) for _ in range(2))

    with pytest.raises(Unreachable):
        connection.call("change many topics", both, timeout_seconds=0.5)
    broker.released.set()
    assert len(sessions(connection)) == 3
    assert len(sessions(connection)) == 3
    assert broker.asked == 2


def test_what_waits_for_room_on_a_connection_that_is_lost_is_tried_again(
    brokers: list[FakeBroker], connection: AdminConnection, stack: ExitStack
) -> None:
    """The connection stays full: its requests got no answer."""
    broker = brokers[2]
    broker.patience = 0
    topic = MetadataRequest.MetadataRequestTopic(name=NAME)
    attempts = []

    async def one(each: StepConnection) -> None:
        await each.send(MetadataRequest(topics=[topic], allow_auto_topic_creation=False), 3)

    async def step(each: StepConnection) -> None:
        attempts.append(each)
        await each.gather(one(each) for _ in range(MANY))

    with ThreadPoolExecutor() as pool:
        called = pool.submit(connection.call, "ask", step, timeout_seconds=30.0)
        wait_until(lambda: broker.asked > 0, what="requests that wait for an answer")
        broker.crash()
        wait_until(lambda: len(attempts) > 1, timeout=20, what="another attempt")
        broker.patience = 10 * MANY
        broker.released.set()
        broker.come_back(stack)
        called.result()


@pytest.mark.parametrize("reached", [True, False], ids=["silent", "lost"])
def test_a_request_counts_as_sent_only_if_a_connection_took_it(
    brokers: list[FakeBroker], connection: AdminConnection, reached: bool
) -> None:
    broker = brokers[2]
    topic = MetadataRequest.MetadataRequestTopic(name=NAME)
    sent = []

    async def step(each: StepConnection) -> None:
        request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        await each.send(request, 3, sent=lambda: sent.append(1))

    if reached:
        broker.silent = True
    else:
        broker.crash()
        wait_until(lambda: 3 not in sessions(connection), what="the loss to be noticed")
    with pytest.raises(Unreachable):
        connection.call("ask", step, timeout_seconds=0.5)
    assert bool(sent) is reached
