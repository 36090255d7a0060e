"""Commands of rarer days, each with exactly the rights that `drkit acls` prints for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.lab import Lab
from drkit.store import open_store
from tests.support.estates import OwnLink, mirror, own_link, texts
from tests.support.rights import Grants, as_exact, printed, run

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]


@pytest.fixture
def own(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """A link on clusters with an authorizer, as a super user: for what others do, and to look."""
    mine = own_link(secure_lab, tmp_path, unique_name)
    yield mine
    mine.store.close()


@pytest.fixture
def grants(secure_lab: Lab) -> Iterator[Grants]:
    given = Grants(secure_lab)
    yield given
    given.clear()


@pytest.fixture
def exact(own: OwnLink, secure_lab: Lab) -> Iterator[OwnLink]:
    """The same link as the user `exact`, who may do nothing yet."""
    mine = as_exact(own, secure_lab)
    yield mine
    mine.store.close()


def only(grants: Grants, exact: OwnLink, *words: str) -> None:
    """Give the rights of one command, and no other."""
    grants.clear()
    grants.give(printed(exact, *words))


def mirrored(own: OwnLink) -> tuple[str, str]:
    """A topic and a group, mirrored by a super user."""
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("before", 50))
    group = own.commit("primary", "billing", topic, {0: 50, 1: 20})
    assert mirror(own) == 100
    return topic, group


def test_a_lost_store_is_recovered_with_exactly_the_rights(
    own: OwnLink, exact: OwnLink, grants: Grants, tmp_path: Path
) -> None:
    mirrored(own)
    for each in (own, exact):
        each.store.close()
    (tmp_path / "burnt").mkdir()
    for path in sorted(tmp_path.glob("drkit.db*")):
        shutil.move(path, tmp_path / "burnt")
    only(grants, exact, "--command", "store recover")
    try:
        (found,) = run("store", exact, "recover", "--from", "dr", schema="store-recover")["links"]
        assert (found["topics"], found["partitions"], found["left_out"]) == (1, 2, [])
    finally:
        for each in (own, exact):
            each.store = open_store(each.config.store.plain_url)
