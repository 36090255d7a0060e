"""The archive that Spark's workers, and `spark-submit --py-files`, get drkit from."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from drkit.audit.read.shipped_code import ARCHIVE, callables_archive, code_archive


def test_the_archive_is_drkit_and_makes_itself_again(tmp_path: Path) -> None:
    made = code_archive(tmp_path)
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    assert {"drkit/seed/task.py", "drkit/kafka/admin/schemas/ConsumerGroupDescribeRequest.json"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    told = subprocess.run(
        [sys.executable, "-m", "drkit.audit.read.shipped_code"],
        cwd=elsewhere,
        env=os.environ | {"PYTHONPATH": str(made)},
        capture_output=True,
        text=True,
        check=True,
    )
    again = elsewhere / ARCHIVE
    assert told.stdout == f"{again}\n"
    assert again.read_bytes() == made.read_bytes(), "taken from the archive, not from a folder"


def test_the_modules_of_callables_are_sent_unless_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "users"
    package = folder / "mirror_rules_of_ours"
    (package / "inner").mkdir(parents=True)
    for path in ("__init__.py", "inner/__init__.py", "inner/rules.py"):
        (package / path).write_text("")
    (folder / "space_of_ours" / "deep").mkdir(parents=True)
    (folder / "space_of_ours" / "deep" / "rules.py").write_text("")
    (folder / "one_file_of_ours.py").write_text("def f(record): return True\n")
    monkeypatch.syspath_prepend(folder)
    names = [
        "mirror_rules_of_ours.inner.rules:f",
        "one_file_of_ours:f",
        "space_of_ours.deep.rules:f",
        "json:loads",
        "xxhash:xxh64",
        "drkit.cli.main:main",
    ]

    made = callables_archive(names, tmp_path)

    assert made is not None
    with zipfile.ZipFile(made) as archive:
        assert sorted(archive.namelist()) == [
            "mirror_rules_of_ours/",
            "mirror_rules_of_ours/__init__.py",
            "mirror_rules_of_ours/inner/",
            "mirror_rules_of_ours/inner/__init__.py",
            "mirror_rules_of_ours/inner/rules.py",
            "one_file_of_ours.py",
            "space_of_ours/",
            "space_of_ours/deep/",
            "space_of_ours/deep/rules.py",
        ]
    assert callables_archive(names, tmp_path) == made
    assert callables_archive(["json:loads", "not_there_of_ours:f"], tmp_path) is None
