"""A link of the test's own, and one Spark session on this machine for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.audit.spark.session import SparkRuntime, stop_session
from drkit.lab import Lab
from drkit.lab.toolchain import Toolchain
from tests.support.links.mirroring import Mirrored


@pytest.fixture(scope="session")
def spark(toolchain: Toolchain) -> Iterator[SparkRuntime]:
    yield SparkRuntime(toolchain.spark_java_home, driver_memory="1g")
    stop_session()


@pytest.fixture
def mirrored(lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    world = Mirrored(lab, tmp_path, unique_name)
    yield world
    world.close()
