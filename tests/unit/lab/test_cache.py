"""The cache: only whole jars count, checked by their bytes."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from drkit.lab.process import Interrupts
from drkit.lab.toolchain.fetch import cache_lock, jar_path, make_cache_dir, missing
from drkit.lab.toolchain.lockfile import Coordinate, Jar
from drkit.model.errors import DrkitError

_CONTENT = {"one": b"first jar", "two": b"second jar"}
_JARS = [
    Jar(Coordinate("org.example", name, "1"), "", hashlib.sha256(content).hexdigest(), len(content))
    for name, content in _CONTENT.items()
]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for jar in _JARS:
        path = jar_path(tmp_path, jar)
        path.parent.mkdir(parents=True)
        path.write_bytes(_CONTENT[jar.module.name])
    return tmp_path


def test_nothing_is_missing_of_a_whole_cache(cache: Path):
    assert missing(cache, _JARS) == []


def test_an_absent_jar_is_missing(cache: Path):
    jar_path(cache, _JARS[0]).unlink()
    assert missing(cache, _JARS) == [_JARS[0]]


def test_a_cut_off_jar_is_missing(cache: Path):
    jar_path(cache, _JARS[1]).write_bytes(_CONTENT["two"][:-1])
    assert missing(cache, _JARS) == [_JARS[1]]


def test_a_jar_with_one_changed_byte_is_missing(cache: Path):
    jar_path(cache, _JARS[1]).write_bytes(_CONTENT["two"].replace(b"s", b"S"))
    assert missing(cache, _JARS) == [_JARS[1]]


def test_a_cache_that_cannot_be_written_is_said_with_the_way_out(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(DrkitError, match="DRKIT_CACHE_DIR"):
        make_cache_dir(tmp_path / "file" / "cache")


def test_a_second_set_up_waits_for_the_first(tmp_path: Path):
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        with cache_lock(tmp_path, Interrupts(), waiting.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with cache_lock(tmp_path, Interrupts(), lambda: None):
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
