"""A connection that is given up leaves no socket open, whatever it was at: a mirror or a status page gives up many."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from kafka.net.compat import KafkaNetClient
from kafka.net.selector import NetworkSelector

from drkit.config import ClusterConfig
from drkit.kafka.admin.admin_connection import Reachability, _in_background, _stop
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.connection_manager import ConnectionManager
from drkit.model.errors import Unreachable
from tests.support.wait import wait_until

PATIENCE = 60.0
"""Of the test, on a busy machine."""
_MORE_THAN_FITS = 16 * 1024 * 1024
"""Bytes that the kernel doesn't take for a peer that doesn't read."""


@contextmanager
def none_left_open(server: socket.socket) -> Iterator[None]:
    """Once the threads that the block started have ended, no socket to this server waits for the garbage collector."""
    before = set(threading.enumerate())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # what other tests left is not this one's
        gc.collect()
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always", ResourceWarning)
        yield
        wait_until(lambda: set(threading.enumerate()) <= before, PATIENCE, "the end of the connection's threads")
        gc.collect()
    told = [str(each.message) for each in met]
    port = server.getsockname()[1]
    assert [each for each in told if f", {port})" in each or "raddr" not in each] == []


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Its kernel takes connections; it says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as made:
        made.settimeout(PATIENCE)
        yield made


@pytest.fixture
def ca(tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    return str(path)


def address(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_while_nobody_takes_the_connection() -> None:
    """The queue of the kernel is full, so it drops what else comes."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as held:
        for _ in range(4):
            client = held.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        cluster = ClusterConfig(bootstrap_servers=address(server))
        with (
            none_left_open(server),
            ClusterAdmin("old", cluster, timeout_seconds=600, reach=Reachability(0.3)) as admin,
            pytest.raises(Unreachable),
        ):
            admin.brokers()


@pytest.mark.parametrize("heard", [False, True], ids=["at-once", "when-it-has-spoken"])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_before_the_broker_has_answered(server: socket.socket, ca: str, protocol: str, heard: bool) -> None:
    client = {"security.protocol": protocol} | ({"ssl.ca.location": ca} if protocol == "SSL" else {})
    cluster = ClusterConfig(bootstrap_servers=address(server), client=client)
    with none_left_open(server):
        admin = ClusterAdmin("old", cluster, timeout_seconds=600)
        admin.connect_soon()
        if not heard:
            admin.close()
            return
        with server.accept()[0] as broker:
            broker.settimeout(PATIENCE)
            assert broker.recv(1)
            admin.close()


def end_once_connected(server: socket.socket, meanwhile: Callable[[Any], object]) -> None:
    """Connect, do something with the connection on the I/O thread, and end the client as one that failed.

    The versions are given, so the server has to answer nothing.
    """
    loop = NetworkSelector()
    manager = ConnectionManager(loop, bootstrap_servers=[address(server)], api_version=(0, 9))
    loop.start()
    (broker,) = manager.cluster.bootstrap_brokers()
    connection = manager.run_within(PATIENCE, manager.get_connection, broker.node_id)
    manager.run_within(PATIENCE, lambda: meanwhile(connection))
    _in_background(partial(_stop, KafkaNetClient(net=loop, manager=manager)), manager)


def test_with_bytes_that_the_broker_does_not_take(server: socket.socket) -> None:
    with none_left_open(server):
        end_once_connected(server, lambda connection: connection.transport.write(bytes(_MORE_THAN_FITS)))


def test_which_lost_its_transport_while_it_was_closed(server: socket.socket) -> None:
    """What remains when one thread closes a connection in the moment in which the other hands it its transport."""
    with none_left_open(server):
        end_once_connected(server, lambda connection: connection.connection_lost(None))
