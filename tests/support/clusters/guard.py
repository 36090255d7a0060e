"""Takes test labs down after the end of the test process, even by SIGKILL.

The test process holds the write end of a pipe; when it dies the pipe closes, and this process, its reader, takes down
the labs that it knows. Started as `python -m tests.support.clusters.guard`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from drkit.lab.lab import take_down_folder
from drkit.lab.layout import LabDir
from drkit.lab.process import kill, marked


class Guard:
    """The test process's side: names each lab's folder before its start."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.clusters.guard"],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=Path(__file__).parents[3],
        )

    def watch(self, folder: Path) -> None:
        """From now on this lab dies with the test process."""
        pipe = self._process.stdin
        assert pipe is not None
        pipe.write(f"{folder.resolve()}\n")
        pipe.flush()

    def close(self) -> None:
        """End the guard; it takes down the labs that still run."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Read folders until the pipe closes, then take down their labs."""
    folders = [Path(line.rstrip("\n")) for line in sys.stdin]
    for folder in folders:
        kill(marked(folder).values())
        if LabDir(folder).layout_file.exists():
            take_down_folder(folder)


if __name__ == "__main__":
    main()
