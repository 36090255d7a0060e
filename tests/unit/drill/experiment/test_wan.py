"""The line between drkit and primary, with real sockets: what it holds up, holds back, and cuts."""

import socket
import threading
import time
from contextlib import closing

import pytest

from drkit.drill.environment.wan import BROKERS, PROXY, Wan
from drkit.lab.ports import free_ports
from drkit.model.errors import DrkitError


@pytest.fixture
def broker():
    """Stands in for a broker: what comes is sent back. Its port."""
    port = free_ports(1)[0]
    with closing(socket.create_server((BROKERS, port))) as listening:

        def serve():
            while True:
                try:
                    taken, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=echo, args=(taken,), daemon=True).start()

        def echo(taken):
            with taken:
                try:
                    while data := taken.recv(65536):
                        taken.sendall(data)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield port


@pytest.fixture
def line(tmp_path, broker):
    with closing(Wan(tmp_path, [broker])) as wan:
        yield wan


@pytest.fixture
def connect(broker):
    opened = []

    def make(seconds=60.0):
        opened.append(socket.create_connection((PROXY, broker), timeout=seconds))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def answered(connection, text=b"x"):
    connection.sendall(text)
    found = b""
    while len(found) < len(text):
        data = connection.recv(65536)
        if not data:
            break
        found += data
    return found == text


def silent(connection, seconds=0.5):
    connection.settimeout(seconds)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(60.0)
    return False


@pytest.mark.usefixtures("line")
def test_everything_passes_whole_and_in_order(connect):
    text = bytes(range(256)) * 8_000
    connection = connect()
    threading.Thread(target=connection.sendall, args=(text,), daemon=True).start()
    found = b""
    while len(found) < len(text):
        found += connection.recv(65536)
    assert found == text


def test_a_delay_is_each_way(line, connect):
    line.change(delay_ms=150.0)
    began = time.monotonic()
    assert answered(connect())
    assert time.monotonic() - began >= 0.3


def test_a_narrow_line_takes_its_time(line, connect):
    line.change(kilobytes_per_second=200.0)
    began = time.monotonic()
    assert answered(connect(), b"x" * 60_000)
    assert time.monotonic() - began >= 0.3


def test_a_lost_packet_is_sent_again(line, connect):
    line.change(loss=0.999_999)
    began = time.monotonic()
    assert answered(connect())
    assert time.monotonic() - began >= 0.4


@pytest.mark.parametrize("blocked", [("to_primary",), ("from_primary",), ("to_primary", "from_primary")])
def test_in_a_partition_nothing_comes_and_afterwards_all_of_it(line, connect, blocked):
    connection = connect()
    assert answered(connection)
    line.change(blocked=blocked)
    connection.sendall(b"late")
    assert silent(connection)
    line.heal()
    assert connection.recv(4, socket.MSG_WAITALL) == b"late"


def test_what_a_firewall_forgot_stays_silent_and_new_connections_get_through(line, connect):
    connection = connect()
    assert answered(connection)
    line.change(blocked=("from_primary",), forgets=True)
    line.heal()
    connection.sendall(b"x")
    assert silent(connection)
    assert answered(connect())


def test_a_reset_is_one_and_new_connections_get_through(line, connect):
    connection = connect()
    assert answered(connection)
    line.change(resets=1)
    with pytest.raises(ConnectionResetError):
        connection.recv(1)
    assert answered(connect())


def test_a_configuration_names_the_line_while_it_is_there(line, tmp_path):
    config = tmp_path / "drkit.toml"
    config.write_text('bootstrap_servers = "127.0.0.1:1"\n')
    line.route_through(config, "127.0.0.1:1", "127.0.0.2:2")
    assert config.read_text() == 'bootstrap_servers = "127.0.0.2:2"\n'
    line.close()
    assert config.read_text() == 'bootstrap_servers = "127.0.0.1:1"\n'


def test_a_line_that_can_not_be_made_is_told(tmp_path, broker):
    with closing(socket.create_server((PROXY, broker))), pytest.raises(DrkitError, match="does not answer"):
        Wan(tmp_path, [broker])
