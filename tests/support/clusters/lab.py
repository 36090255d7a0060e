"""Session fixtures: one lab for all tests (topics get unique names), one Cassandra node, the toolchain."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from drkit.config import load_config
from drkit.lab import Lab
from drkit.lab.toolchain import Toolchain, ensure
from drkit.model.errors import DrkitError
from drkit.store import open_store
from tests.support.clusters.guard import Guard
from tests.support.clusters.oauth import Issuer
from tests.support.clusters.tls import Pem, make_certificates, over_tls, tls_listeners

_START_SECONDS = 300.0


class SharedLabs:
    """The labs that this process's tests share. After a failure what is down in them is started: else each later test
    fails because one test left a node down."""

    def __init__(self) -> None:
        self._labs: list[Lab] = []
        self._doubted = False

    @contextmanager
    def sharing(self, lab: Lab) -> Iterator[Lab]:
        """Look after this lab for the length of the block, and end it."""
        self._labs.append(lab)
        yield lab
        self._labs.remove(lab)
        lab.down()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.outcome == "rerun":  # pytest-rerunfailures' word: failed, and tried again
            self._doubted = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if self._doubted:
            self._doubted = False
            for lab in self._labs:
                start_again(lab)


def start_again(lab: Lab) -> None:
    """Start the nodes that are down or paused; one that is only slow to answer is left alone. Where that fails, the
    tests that need the lab say so, and no others."""
    idle = [node.name for node in lab.status() if node.state in {"down", "paused"}]
    if idle:
        with suppress(DrkitError):
            lab.restart(*idle, timeout_seconds=_START_SECONDS)


_SHARED = SharedLabs()


def pytest_configure(config: pytest.Config) -> None:
    """Look after the shared labs."""
    config.pluginmanager.register(_SHARED)


@pytest.fixture(scope="session")
def lab_guard() -> Iterator[Guard]:
    """Tests that start their own labs register them here first: `lab_guard.watch(folder)`."""
    guard = Guard()
    yield guard
    guard.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    """Two clusters, `primary` and `dr`, of one broker each, and a drkit.toml with a SQLite store.

    Shared by the whole session: give topics and groups unique names (`unique_name`), and leave the
    nodes running; a test that kills nodes starts them again, or has its own lab.
    """
    folder = tmp_path_factory.mktemp("lab")
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=1, store="sqlite")
    open_store(load_config(lab.config_path).store.plain_url).close()  # as `drkit lab up` does
    with _SHARED.sharing(lab):
        yield lab


USERS = {name: f"{name}secret" for name in ("mirror", "app", "reader", "other", "exact")}
"""Users of the secure lab and their passwords."""


@pytest.fixture(scope="session")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    """Certificates of the secure lab."""
    return make_certificates(tmp_path_factory.mktemp("pem"))


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    """The issuer of the tokens that the secure lab accepts."""
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="session")
def secure_lab(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard, pem: Pem, issuer: Issuer) -> Iterator[Lab]:
    """Clusters `primary` and `dr` with an authorizer and SASL/PLAIN listeners for `USERS`; shared like `lab`.

    Clients of the plain listener have all rights. `secure_lab.bootstrap(alias, listener=…)`: those of
    `tls_listeners`, and `oauth` and `oauthtls`, which accept the issuer's tokens.
    """
    folder = tmp_path_factory.mktemp("secure")
    lab_guard.watch(folder)
    lab = Lab.up(
        folder,
        brokers=1,
        store="sqlite",
        users=USERS,
        listeners=tls_listeners(pem, USERS)
        | {"oauth": issuer.listener(), "oauthtls": over_tls(issuer.listener(), pem)},
    )
    open_store(load_config(lab.config_path).store.plain_url).close()
    with _SHARED.sharing(lab):
        yield lab


@pytest.fixture(scope="session")
def cassandra_lab(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    """A single Cassandra node: `cassandra-1` of a lab without clusters."""
    folder = tmp_path_factory.mktemp("cassandra")
    lab_guard.watch(folder)
    with _SHARED.sharing(Lab.up(folder, store="cassandra", clusters=())) as lab:
        yield lab


@pytest.fixture
def cassandra_url(cassandra_lab: Lab) -> str:
    """A store URL on the session's Cassandra node, with a new keyspace."""
    return cassandra_lab.store_url(f"drkit_{uuid.uuid4().hex[:16]}")


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """Java, and the jars of Kafka, Cassandra and Spark's connector."""
    return ensure("kafka", "cassandra", "spark")


@pytest.fixture
def unique_name() -> str:
    """A unique name for a topic or a group."""
    return f"t-{uuid.uuid4().hex[:12]}"
