"""Runs a command in its own network namespace, which ends with it, with its addresses, rules and settings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from bench.processes import die_with_parent

_INSIDE = "BENCH_NAMESPACE"


def lacking(tools: Sequence[str], probe: str, what: str) -> str:
    """Why there can be none here; "": there can. `probe`: a shell command that must work in it, for `what`."""
    if os.geteuid() != 0:
        return "a network namespace and iptables need root"
    missing = [tool for tool in ("unshare", *tools) if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not on PATH"
    tried = subprocess.run(["unshare", "--net", "sh", "-c", probe], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no {what}: {tried.stderr.strip() or 'iptables failed'}"


def inside() -> bool:
    """Whether this process runs in one."""
    return os.environ.get(_INSIDE) == "1"


def run_inside(module: str, arguments: Sequence[str], *options: str) -> int:
    """Run `python -m MODULE` in one; returns its exit code. `options`: of `unshare`, besides `--net`."""
    os.environ[_INSIDE] = "1"
    child = subprocess.Popen(
        ["unshare", "--net", *options, sys.executable, "-m", module, *arguments],
        preexec_fn=die_with_parent,  # noqa: PLW1509 - no lock is taken between fork and exec
    )
    return child.wait()


def loopback_up() -> None:
    """Bring up its loopback interface."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
