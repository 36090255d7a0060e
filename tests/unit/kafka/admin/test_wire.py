"""Brokers that accept a connection and then say nothing, as a frozen process does: every call ends in time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from kafka.future import Future

from drkit.config import ClusterConfig
from drkit.kafka.admin import connection_manager
from drkit.kafka.admin.admin_connection import Reachability
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import Clusters
from drkit.kafka.admin.connection_manager import REFUSED_SECONDS
from drkit.model.clock import Deadline
from drkit.model.errors import DrkitError, Unreachable

PATIENCE = 20.0
"""Of the test; a call that isn't bounded continues for ever."""


@pytest.fixture
def frozen() -> Iterator[str]:
    """Its kernel takes connections; nobody reads from them."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def ca(tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    return str(path)


def refusal(admin: ClusterAdmin) -> Unreachable:
    """What a call ends with."""
    found: list[BaseException] = []

    def ask() -> None:
        try:
            admin.brokers()
        except Unreachable as error:
            found.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    assert not asking.is_alive(), "the call continues and on"
    (error,) = found
    assert isinstance(error, Unreachable)
    return error


SASL = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"}


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_a_frozen_broker_is_given_up_in_time(frozen: str, ca: str, protocol: str) -> None:
    client = {"security.protocol": protocol}
    if "SASL" in protocol:
        client |= SASL
    if "SSL" in protocol:
        client["ssl.ca.location"] = ca
    with ClusterAdmin("old", ClusterConfig(bootstrap_servers=frozen, client=client), timeout_seconds=0.7) as admin:
        error = refusal(admin)
    assert "old did not answer within 0.7 s" in error.what
    assert error.remedy


def test_a_cluster_where_nothing_listens_says_what_was_wanted_and_its_error_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
        with ClusterAdmin("old", ClusterConfig(bootstrap_servers=nobody), timeout_seconds=2) as admin:
            error = refusal(admin)
    assert "old did not answer within 2 s, when drkit wanted to list brokers" in error.what
    assert (error.meaning or "").count("KafkaConnectionError") == 1


def test_a_cluster_that_may_be_gone_is_given_up_sooner_and_a_second_time_at_once(frozen: str, ca: str) -> None:
    reach = Reachability(0.6, glance_seconds=0.2)
    cluster = ClusterConfig(bootstrap_servers=frozen, client={"security.protocol": "SSL", "ssl.ca.location": ca})
    with ClusterAdmin("old", cluster, timeout_seconds=600, reach=reach) as admin:
        assert "within 0.6 s" in refusal(admin).what
        assert reach.gone
    with ClusterAdmin("old", cluster, timeout_seconds=600, reach=reach) as another:
        assert "within 0.2 s" in refusal(another).what


@contextmanager
def asking(admin: ClusterAdmin) -> Iterator[list[BaseException]]:
    """Somebody asks while the block runs; then it has to end, and what it ended with is in the list."""
    found: list[BaseException] = []
    begun = threading.Event()

    def ask() -> None:
        begun.set()
        try:
            admin.brokers()
        except DrkitError as error:
            found.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    begun.wait(PATIENCE)
    yield found
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the call continues and on"


def connections(server: socket.socket) -> int:
    """How many have been made to it."""
    server.setblocking(False)
    count = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_a_call_that_waits_ends_when_the_connection_is_closed(frozen: str) -> None:
    """A mirror that is to end leaves at once, whatever the cluster does."""
    admin = ClusterAdmin("old", ClusterConfig(bootstrap_servers=frozen), timeout_seconds=600)
    with asking(admin) as found:
        admin.close()
    assert "was closed" in str(found[0])


def test_closing_while_an_attempt_fails_is_no_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = ClusterConfig(bootstrap_servers=f"127.0.0.1:{port}")
    for number in range(8):
        admin = ClusterAdmin("old", cluster, timeout_seconds=0.1)
        with asking(admin):
            threading.Event().wait(0.03 * number)  # some close before the attempt has failed, some while, some after
            admin.close()


def test_a_name_server_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    def hangs(*_: object, **__: object) -> list[object]:
        asked.set()
        answers.wait(PATIENCE)
        return []

    monkeypatch.setattr("kafka.net.inet.socket.getaddrinfo", hangs)
    admin = ClusterAdmin("old", ClusterConfig(bootstrap_servers="old.invalid:9092"), timeout_seconds=600)
    try:
        with asking(admin) as found:
            assert asked.wait(PATIENCE)
            admin.close()
        assert "was closed" in str(found[0])
    finally:
        answers.set()


def test_the_attempt_continues_while_nobody_waits_for_it() -> None:
    """A cluster that is slow is found by whoever asks later, without being asked again."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        cluster = ClusterConfig(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}")
        with ClusterAdmin("old", cluster, timeout_seconds=600, reach=Reachability(0.3)) as admin:
            for _ in range(3):
                assert "within 0.3 s" in refusal(admin).what
            assert connections(server) == 1


def test_a_cluster_that_refuses_connections_is_not_waited_for_as_a_slow_one() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = ClusterConfig(bootstrap_servers=f"127.0.0.1:{port},localhost:{port}")
    with ClusterAdmin("old", cluster, timeout_seconds=600, reach=Reachability(600)) as admin:
        error = refusal(admin)
    assert f"within {REFUSED_SECONDS:g} s" in error.what
    assert "REFUSED" in error.meaning


def test_where_only_one_broker_refuses_the_others_have_their_time(frozen: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = ClusterConfig(bootstrap_servers=f"127.0.0.1:{port},{frozen}")
    with ClusterAdmin("old", cluster, timeout_seconds=600, reach=Reachability(1.2)) as admin:
        assert "within 1.2 s" in refusal(admin).what


def test_an_address_that_answers_nothing_is_given_up_in_time() -> None:
    """The queue of connections that nobody accepts is full: the kernel drops what else comes."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as held:
        for _ in range(4):
            client = held.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        cluster = ClusterConfig(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}")
        with ClusterAdmin("old", cluster, timeout_seconds=600, reach=Reachability(0.4)) as admin:
            assert "within 0.4 s" in refusal(admin).what


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_cluster_that_says_something_is_waited_for_longer_and_not_for_ever(ca: str, protocol: str) -> None:
    """Each byte shows that somebody is there; that the connection was taken doesn't."""
    client = {"security.protocol": protocol} | ({"ssl.ca.location": ca} if protocol == "SSL" else {})
    begins = b"\x16\x03\x03\x40\x00" if protocol == "SSL" else b"\x00\x00\x40\x00"
    given_up = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def talk() -> None:
            with server.accept()[0] as broker:
                for byte in begins + bytes(1000):
                    broker.send(bytes([byte]))
                    if given_up.wait(0.1):
                        return

        talking = threading.Thread(target=talk, daemon=True)
        talking.start()
        reach = Reachability(0.5, most_seconds=1.5)
        cluster = ClusterConfig(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}", client=client)
        try:
            with ClusterAdmin("old", cluster, timeout_seconds=600, reach=reach) as admin:
                assert "within 1.5 s" in refusal(admin).what
        finally:
            given_up.set()
            talking.join(PATIENCE)


def test_a_syn_that_is_lost_does_not_make_a_cluster_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel sends it again only after a second: by then a second connection was begun, and is taken."""
    real, begun = connection_manager.create_connection, []

    async def first_is_lost(*given: Any, **options: Any) -> Any:
        begun.append(given)
        if len(begun) == 1:
            await Future()
        return await real(*given, **options)

    monkeypatch.setattr(connection_manager, "create_connection", first_is_lost)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.settimeout(PATIENCE)
        cluster = ClusterConfig(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}")
        with ClusterAdmin("old", cluster, timeout_seconds=600) as admin:
            admin.connect_soon()
            with server.accept()[0] as broker:
                broker.settimeout(PATIENCE)
                assert broker.recv(1)
    assert len(begun) == 2


def test_who_asks_after_the_time_is_over_does_not_wait_again(frozen: str) -> None:
    """Begun early, for several clusters at once, the patience is spent while other work is done."""
    clusters = {"old": ClusterConfig(bootstrap_servers=frozen), "older": ClusterConfig(bootstrap_servers=frozen)}
    with Clusters(clusters, timeout_seconds=600, patience_seconds=0.3) as known:
        known.connect_soon(clusters)
        assert "within 0.3 s" in refusal(known.admin("old", may_be_gone=True)).what
        assert known.reach("old").gone
        with Clusters(clusters, timeout_seconds=600, patience_seconds=600, known=known) as others:
            assert others.reach("old") is known.reach("old")
            assert "within 0.3 s" in refusal(others.admin("old", may_be_gone=True)).what


def test_connections_that_were_begun_early_are_taken_over_with_what_they_found_out(frozen: str) -> None:
    clusters = {"old": ClusterConfig(bootstrap_servers=frozen), "dr": ClusterConfig(bootstrap_servers=frozen)}
    early = Clusters(clusters, timeout_seconds=600, patience_seconds=0.3)
    early.connect_soon(["old"])
    begun = early.admin("old", may_be_gone=True)
    with Clusters(clusters, timeout_seconds=600, patience_seconds=600) as later:
        later.adopt(early, ["old"])
        early.close()
        assert later.admin("old", may_be_gone=True) is begun
        assert "within 0.3 s" in refusal(begun).what
        assert later.reach("old").gone
        assert not later.reach("dr").gone


def test_nested_waits_share_a_deadline() -> None:
    whole = Deadline.after(100)
    assert whole.within(1000) == whole
    assert whole.within(1) < whole
    assert not whole.passed
    assert Deadline(0.0).passed
    assert Deadline(0.0).left == 0
