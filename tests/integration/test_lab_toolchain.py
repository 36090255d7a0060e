"""The cache against the real package registry: a jar that is damaged is fetched again, and only that one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from drkit.lab.toolchain import Toolchain, ensure
from drkit.lab.toolchain import cache as caching
from drkit.lab.toolchain.lockfile import read_lock
from drkit.model.errors import DrkitError


@pytest.fixture
def copied(toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own that holds the Spark set."""
    for jar in toolchain.sets["spark"]:
        path = caching.jar_path(tmp_path, jar)
        path.parent.mkdir(parents=True)
        shutil.copyfile(caching.jar_path(toolchain.cache, jar), path)
    monkeypatch.setenv("DRKIT_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_damaged_jar_is_fetched_again_and_the_others_are_left(copied: Path):
    jars = sorted(read_lock("spark").jars, key=lambda jar: jar.size)
    damaged = caching.jar_path(copied, jars[0])
    damaged.write_bytes(b"x" * jars[0].size)
    untouched = {path: path.stat().st_ino for jar in jars[1:] if (path := caching.jar_path(copied, jar))}
    found = ensure("spark")
    assert all(caching.is_whole(caching.jar_path(copied, jar), jar) for jar in jars)
    assert {path: path.stat().st_ino for path in untouched} == untouched
    assert sorted(found.jars("spark")) == sorted([damaged, *untouched])
    assert not (copied / "fetching").exists()


def test_what_cannot_be_fetched_is_named_and_the_rest_is_kept(copied: Path, monkeypatch: pytest.MonkeyPatch):
    jars = sorted(read_lock("spark").jars, key=lambda jar: jar.size)
    caching.jar_path(copied, jars[0]).unlink()
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")  # nobody listens there
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(DrkitError, match=rf"1 of {len(jars)} jars could not be fetched: {jars[0].module}") as caught:
        ensure("spark")
    assert "run the same command again" in caught.value.remedy
    assert caught.value.meaning
    assert caching.missing(copied, jars) == [jars[0]]


def test_the_runtime_for_spark_accepts_the_argument_that_pyspark_passes(toolchain: Toolchain):
    java = toolchain.spark_java_home / "bin" / "java"
    command = [java, "--add-modules=jdk.incubator.vector", "-version"]
    assert 'openjdk version "17' in subprocess.run(command, capture_output=True, text=True, check=True).stderr
