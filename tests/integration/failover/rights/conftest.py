"""The secure lab, and a user on it who has exactly the rights that are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.lab import Lab
from tests.support.commands.rights import Grants
from tests.support.links.estates import OwnLink, own_link


@pytest.fixture
def own(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """A link on clusters with an authorizer, as a super user: for what others do, and to look."""
    mine = own_link(secure_lab, tmp_path, unique_name)
    yield mine
    mine.store.close()


@pytest.fixture
def grants(secure_lab: Lab) -> Iterator[Grants]:
    """The rights of the user `exact`; none at first, and at the end."""
    given = Grants(secure_lab)
    yield given
    given.clear()
