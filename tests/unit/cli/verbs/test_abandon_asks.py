"""`drkit abandon` asks at a terminal; in a script, and with --yes, it doesn't."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drkit.store import open_store

CONFIG = """
[clusters.a]
bootstrap_servers = "127.0.0.1:1"
[clusters.b]
bootstrap_servers = "127.0.0.1:2"
[store]
url = "sqlite:///{store}"
[[links]]
source = "a"
target = "b"
topics = [".*"]
"""


@pytest.mark.parametrize(
    ("terminal", "flags", "told"),
    [(True, [], "not confirmed"), (True, ["--yes"], "01J0"), (False, [], "01J0")],
    ids=["asked", "yes", "script"],
)
def test_a_run_is_given_up_unasked_only_by_scripts_and_with_yes(tmp_path: Path, terminal, flags, told):
    config = tmp_path / "drkit.toml"
    config.write_text(CONFIG.format(store=tmp_path / "drkit.db"))
    open_store(f"sqlite:///{tmp_path / 'drkit.db'}").close()
    controller, stdin = os.openpty() if terminal else os.pipe()[::-1]
    try:
        os.write(controller, b"no\n")
        done = subprocess.run(
            [sys.executable, "-m", "drkit", "abandon", "01J0", *flags, "--config", str(config)],
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        os.close(controller)
        os.close(stdin)
    assert (done.returncode, told in done.stderr) == (3, True), done.stderr
    assert ("not confirmed" in done.stderr) == (told == "not confirmed")
