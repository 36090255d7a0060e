"""What drkit writes is for its owner alone, whatever the umask; programs of the user's own keep the user's."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from drkit.store import open_whole_store
from drkit.store.backup import write_backup
from tests.support.commands.bad_input import CONFIG

HOOK = """\
import os, sys
from drkit.model.clock import Deadline
from drkit.directory.command import run_bounded
from drkit.model.process import keep_private
keep_private()
open("ours", "w").close()
os.mkdir("folder")
run_bounded([sys.executable, "-c", "open('theirs', 'w').close()"], {}, "", Deadline.after(30))
"""


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_a_store_that_a_command_makes_is_its_owners(tmp_path: Path) -> None:
    (tmp_path / "drkit.toml").write_text(CONFIG)
    store = open_whole_store(f"sqlite:///{tmp_path}/other.db")
    try:
        write_backup(store, tmp_path / "backup", backend="sqlite")
    finally:
        store.close()
    done = subprocess.run(
        [sys.executable, "-m", "drkit", "store", "restore", "--from", "backup"],
        cwd=tmp_path,
        env={**os.environ, "DRKIT_CONFIG": str(tmp_path / "drkit.toml")},
        umask=0,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert modes(tmp_path)["drkit.db"] == 0o600


def test_a_hook_has_the_umask_that_drkit_was_started_with(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", HOOK], cwd=tmp_path, umask=0o022, check=True, timeout=60)
    assert modes(tmp_path) == {"ours": 0o600, "folder": 0o700, "theirs": 0o644}
