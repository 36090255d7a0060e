"""Three clusters, a, b and c, shared by the tests here; each test has topics and a configuration of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drkit.lab import Lab
from tests.support.clusters.guard import Guard
from tests.support.clusters.topologies import Net
from tests.support.links.sites import Site, mirrored_site, site_links


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("three")
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=1, store="sqlite", clusters=("a", "b", "c"))
    yield lab
    lab.down()


@pytest.fixture
def net(three: Lab, tmp_path: Path) -> Iterator[Callable[..., Net]]:
    """Makes a configuration over the three clusters: `net(links)`; closed when the test ends."""
    made: list[Net] = []

    def make(links: str, clusters: str = "") -> Net:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Net(three, folder, links, clusters))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def site(net: Callable[..., Net], unique_name: str) -> Site:
    """Two primaries, a and b, that mirror to c."""
    return mirrored_site(net(site_links(unique_name)), unique_name)
