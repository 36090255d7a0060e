"""A test that passes when it is tried again still tells why it failed first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_reason_of_a_first_attempt_is_printed(tmp_path: Path) -> None:
    module = tmp_path / "test_once.py"
    module.write_text(
        "tried = []\ndef test_it():\n    tried.append(1)\n    assert len(tried) > 1, 'the broker was down'\n"
    )
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"),
            *("-p", "tests.support.collection.retries", "--reruns", "1", "--rootdir", tmp_path, module),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "test_once.py:4: AssertionError: the broker was down" in run.stdout
