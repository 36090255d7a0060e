"""`drkit` of a future release: its schema version is 2, or the same (`SAME`), and it has another name.

As a program: `python -m tests.support.commands.other_release VERSION ARGUMENTS…`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import drkit
from drkit.store import version
from drkit.store.version import Migration

ROOT = Path(__file__).parents[3]
SECOND = Migration(
    2,
    "a table of remarks",
    ("CREATE TABLE remark (name TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID",),
    ("CREATE TABLE IF NOT EXISTS {keyspace}.remark (name text PRIMARY KEY, body text)",),
)


@contextmanager
def newer(*migrations: Migration) -> Iterator[None]:
    """During the block, this process is the newer release (with these migrations instead of its own)."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(version, "SCHEMA_VERSION", 2)
        patched.setattr(version, "MIGRATIONS", migrations or (SECOND,))
        yield


def command(schema: int, *arguments: str) -> list[str]:
    """The command line of that release."""
    return [sys.executable, "-m", "tests.support.commands.other_release", str(schema), *arguments]


def start(schema: int, *arguments: str) -> subprocess.Popen[str]:
    """Start it."""
    return subprocess.Popen(
        command(schema, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )


def run(schema: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(schema, *arguments), capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )


if __name__ == "__main__":
    version.SCHEMA_VERSION = int(sys.argv[1])
    version.MIGRATIONS = (SECOND,) if version.SCHEMA_VERSION > 1 else ()
    drkit.__version__ = "0.2.0"
    from drkit.cli.main import main

    sys.argv[1:] = sys.argv[2:]
    main()
