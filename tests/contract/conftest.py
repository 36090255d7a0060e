"""The two backends of the store, each real; every test gets names of its own in them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from drkit.model.topology import LinkId
from drkit.store import Store, open_store


@pytest.fixture(scope="session")
def sqlite_store_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/drkit.db"


@pytest.fixture(scope="session")
def cassandra_store_url(cassandra_lab) -> str:
    return cassandra_lab.store_url(f"contract_{uuid.uuid4().hex[:16]}")


@pytest.fixture(
    scope="session", params=["sqlite", pytest.param("cassandra", marks=pytest.mark.cassandra)], name="store_url"
)
def either_store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a backend that all tests share: creating ten tables for each would take most of the time."""
    url: str = request.getfixturevalue(f"{request.param}_store_url")
    return url


@pytest.fixture(scope="session")
def store(store_url: str) -> Iterator[Store]:
    kept = open_store(store_url)
    yield kept
    kept.close()


@pytest.fixture
def link() -> LinkId:
    return LinkId("primary", f"dr-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def name() -> str:
    """A name for a lease or a run."""
    return uuid.uuid4().hex
