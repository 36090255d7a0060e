"""The cache against the real package registry: a jar that is damaged is fetched again, and only that one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.lab.toolchain import Toolchain, ensure
from drkit.lab.toolchain.fetch import is_whole, jar_path, missing
from drkit.lab.toolchain.lockfile import read_lock
from drkit.model.errors import DrkitError

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.fixture
def copied(toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own that holds the Spark set."""
    for jar in toolchain.sets["spark"]:
        path = jar_path(tmp_path, jar)
        path.parent.mkdir(parents=True)
        shutil.copyfile(jar_path(toolchain.cache, jar), path)
    monkeypatch.setenv("DRKIT_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_damaged_jar_is_fetched_again_and_the_others_are_left(copied: Path):
    jars = sorted(read_lock("spark").jars, key=lambda jar: jar.size)
    damaged = jar_path(copied, jars[0])
    damaged.write_bytes(b"x" * jars[0].size)
    untouched = {path: path.stat().st_ino for jar in jars[1:] if (path := jar_path(copied, jar))}
    found = ensure("spark")
    assert all(is_whole(jar_path(copied, jar), jar) for jar in jars)
    assert {path: path.stat().st_ino for path in untouched} == untouched
    assert sorted(found.jars("spark")) == sorted([damaged, *untouched])
    assert not (copied / "fetching").exists()


def test_what_cannot_be_fetched_is_named_and_the_rest_is_kept(copied: Path, monkeypatch: pytest.MonkeyPatch):
    jars = sorted(read_lock("spark").jars, key=lambda jar: jar.size)
    jar_path(copied, jars[0]).unlink()
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")  # nobody listens there
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(DrkitError, match=rf"1 of {len(jars)} jars could not be fetched: {jars[0].module}") as caught:
        ensure("spark")
    assert "run the same command again" in caught.value.remedy
    assert caught.value.meaning
    assert missing(copied, jars) == [jars[0]]


def fetch(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(application(("jars",)), ["jars", "fetch", "spark", "--output", "json", *arguments])
    document = json.loads(done.stdout)
    if "error" not in document:
        jsonschema.validate(document, json.loads((SCHEMAS / "jars.schema.json").read_text()))
    return document | {"exit_code": done.exit_code}


def test_jars_are_fetched_ahead_from_a_repository_of_ones_own_and_only_whole_ones(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    jars = sorted(read_lock("spark").jars, key=lambda jar: jar.size)
    own = tmp_path / "maven"
    for jar in jars:
        folder = own / jar.module.org.replace(".", "/") / jar.module.name / jar.module.rev
        folder.mkdir(parents=True)
        shutil.copyfile(jar_path(toolchain.cache, jar), folder / jar.file_name)
    changed = next(own.rglob(jars[0].file_name))
    changed.write_bytes(changed.read_bytes()[:-1] + b"x")
    monkeypatch.setenv("DRKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DRKIT_JAR_REPOSITORY", own.as_uri())

    missing = fetch("--dry-run")
    assert (missing["exit_code"], len(missing["sets"][0]["missing"])) == (3, len(jars))
    assert not (tmp_path / "cache").exists(), "a dry run makes nothing"

    refused = fetch()
    assert (refused["exit_code"], str(jars[0].module) in refused["error"]["what"]) == (1, True)
    assert "its lock says" in refused["error"]["meaning"]
    assert own.as_uri() in refused["error"]["remedy"]

    shutil.copyfile(jar_path(toolchain.cache, jars[0]), changed)
    found = fetch("--repository", own.as_uri() + "/")
    assert (found["exit_code"], found["sets"][0]["fetched"], found["sets"][0]["missing"]) == (0, 1, [])
    shutil.rmtree(own)
    again = fetch()
    assert (again["exit_code"], again["sets"][0]["fetched"], again["repository"]) == (0, 0, own.as_uri())


@pytest.mark.parametrize(
    "url", ["https://me:secret@host/maven", "ftp://host/maven", "maven", "https:///maven", "http://["]
)
def test_what_is_no_repository_is_refused_and_not_repeated(url: str):
    refused = fetch("--repository", url)
    assert (refused["exit_code"], "secret" in str(refused)) == (2, False)


def test_the_runtime_for_spark_accepts_the_argument_that_pyspark_passes(toolchain: Toolchain):
    java = toolchain.spark_java_home / "bin" / "java"
    command = [java, "--add-modules=jdk.incubator.vector", "-version"]
    assert 'openjdk version "17' in subprocess.run(command, capture_output=True, text=True, check=True).stderr
