"""Puts the man pages into the wheel: Hatchling's hook (pyproject.toml)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface):
    """Writes them from the commands as they are in this tree, so that no wheel has other ones."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them as data that pip puts below the environment's `share/man`."""
        if version == "editable":  # the commands of a checkout change; `make man` writes its pages
            return
        self._folder = tempfile.TemporaryDirectory(prefix="drkit-man-")
        # in a process of its own: the one that builds keeps no module of this tree
        words = [sys.executable, "-m", "tools.manual", "man", self._folder.name]
        done = subprocess.run(words, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the man pages can't be written: {done.stderr}")
        for page in sorted(Path(self._folder.name).glob("man*/*")):
            build_data["shared_data"][str(page)] = f"share/man/{page.parent.name}/{page.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was written."""
        if version != "editable":
            self._folder.cleanup()
