"""The archive of Spark's classes: used where it is there, made once where it isn't, by nobody twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from drkit.audit.spark.class_archive import ClassArchive
from tests.support.wait import wait_until

JAVA = """#!/bin/sh
for argument in "$@"; do
  case "$argument" in
    -XX:SharedArchiveFile=*) echo archive > "${argument#*=}";;
  esac
done
echo run >> "$(dirname "$0")/runs"
"""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    monkeypatch.setenv("DRKIT_CACHE_DIR", str(tmp_path / "cache dir"))
    for folder in ("cache dir", "java/bin", "jars", "session"):
        (tmp_path / folder).mkdir(parents=True)
    java = tmp_path / "java" / "bin" / "java"
    java.write_text(JAVA)
    java.chmod(0o755)
    return ClassArchive.of(tmp_path / "java", tmp_path / "jars")


def test_it_is_made_of_what_a_jvm_has_listed_and_used_from_then_on(archive: ClassArchive, tmp_path: Path):
    session = tmp_path / "session"
    assert archive.options(session) == [f"-XX:DumpLoadedClassList={session}/classes.lst"]
    archive.make(session)  # nothing was listed
    (session / "classes.lst").write_text("java/lang/Object\n")

    archive.make(session)

    wait_until(archive.path.is_file, what="the archive")
    assert archive.options(session) == [f"-XX:SharedArchiveFile={archive.path}", "-Xshare:auto"]
    wait_until(lambda: list(archive.path.parent.iterdir()) == [archive.path], what="nothing else to be left")
    archive.make(session)
    assert (tmp_path / "java" / "bin" / "runs").read_text() == "run\n"


def test_it_is_not_made_while_another_process_is_at_it(archive: ClassArchive, tmp_path: Path):
    (tmp_path / "session" / "classes.lst").write_text("java/lang/Object\n")
    archive.path.with_suffix(".1.partial").write_text("")

    archive.make(tmp_path / "session")

    assert [each.suffix for each in archive.path.parent.iterdir()] == [".partial"]


def test_other_jars_have_another_archive(archive: ClassArchive, tmp_path: Path):
    (tmp_path / "jars 2").mkdir()

    assert ClassArchive.of(tmp_path / "java", tmp_path / "jars 2").path != archive.path
