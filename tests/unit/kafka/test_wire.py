"""Brokers that accept a connection and then say nothing, as a frozen process does: every call ends in time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from drkit.config import ClusterConfig
from drkit.kafka.admin.admin_connection import Reachability
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.deadline import Deadline
from drkit.model.errors import Unreachable

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


def test_a_cluster_that_may_be_gone_is_given_up_sooner_and_a_second_time_at_once(frozen: str, ca: str) -> None:
    reach = Reachability(0.6, glance_seconds=0.2)
    cluster = ClusterConfig(bootstrap_servers=frozen, client={"security.protocol": "SSL", "ssl.ca.location": ca})
    with ClusterAdmin("old", cluster, timeout_seconds=600, reach=reach) as admin:
        assert "within 0.6 s" in refusal(admin).what
        assert reach.gone
    with ClusterAdmin("old", cluster, timeout_seconds=600, reach=reach) as another:
        assert "within 0.2 s" in refusal(another).what


def test_nested_waits_share_a_deadline() -> None:
    whole = Deadline.after(100)
    assert whole.within(1000) == whole
    assert whole.within(1) < whole
    assert not whole.passed
    assert Deadline(0.0).passed
    assert Deadline(0.0).left == 0
