"""The archive that Spark's workers, and `spark-submit --py-files`, get drkit from."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from drkit.audit.shipping import ARCHIVE, code_archive


def test_the_archive_is_drkit_and_makes_itself_again(tmp_path: Path) -> None:
    made = code_archive(tmp_path)
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    assert {"drkit/seed/task.py", "drkit/kafka/schemas/ConsumerGroupDescribeRequest.json"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    told = subprocess.run(
        [sys.executable, "-m", "drkit.audit.shipping"],
        cwd=elsewhere,
        env=os.environ | {"PYTHONPATH": str(made)},
        capture_output=True,
        text=True,
        check=True,
    )
    again = elsewhere / ARCHIVE
    assert told.stdout == f"{again}\n"
    assert again.read_bytes() == made.read_bytes(), "taken from the archive, not from a folder"
