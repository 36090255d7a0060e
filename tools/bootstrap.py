"""Make the virtual environment that `make demo` and `make test` run in. Standard library only.

    python3 tools/bootstrap.py [--extra dev] [--venv .venv]

Runs again only what changed: the environment carries a stamp of pyproject.toml, constraints.txt and
the extras. pip shows its progress, keeps what it downloaded per user, checks each file against the
hash that the registry publishes, and resumes a broken download.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOWEST, BELOW = (3, 11), (3, 14)


def main() -> int:
    """Make or update the environment; 0 where it is ready."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--extra", action="append", default=[], help="optional dependencies of pyproject.toml")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    arguments = parser.parse_args()
    if not LOWEST <= sys.version_info[:2] < BELOW:
        found = ".".join(map(str, sys.version_info[:3]))
        say(f"Python {found} doesn't fit: 3.11, 3.12 or 3.13 is needed (PySpark 4.0 runs on no newer one).")
        say("Install one of them and name it: make PYTHON=python3.13 …")
        return 2
    try:
        prepare(arguments.venv, arguments.extra)
    except subprocess.CalledProcessError as error:
        say(f"stopped: `{' '.join(map(str, error.cmd[:6]))} …` ended with {error.returncode}.")
        say("What arrived is kept; run the same command again to continue. Is the package registry reachable?")
        return 1
    except KeyboardInterrupt:
        say("interrupted; run the same command again to continue.")
        return 1
    return 0


def prepare(venv: Path, extras: list[str]) -> None:
    """Create the environment where there is none, and install what its stamp doesn't cover."""
    python = venv / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp, wanted = venv / ".drkit-stamp", fingerprint(extras)
    if stamp.exists() and covers(stamp.read_text(), wanted):
        return
    if not works(python):
        say(f"making {venv.name} with Python {sys.version.split()[0]}")
        make_venv(venv)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--upgrade", "pip>=25.1"])
    what = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    say("installing dependencies (about 700 MB the first time, most of it Spark)")
    retries = ["--retries", "5", "--resume-retries", "5"]
    run([*pip, "install", *retries, "--constraint", str(ROOT / "constraints.txt"), "--editable", what])
    say("compiling the loops over single records (seconds)")
    # where that can't be done it says so: drkit does the same in plain Python
    subprocess.run([str(python), "-m", "drkit.kafka.compiled"], check=False, cwd=ROOT)
    stamp.write_text(wanted)


def make_venv(venv: Path) -> None:
    """`python -m venv`; where a distribution left ensurepip out, say which package brings it."""
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=False, capture_output=True)
    if made.returncode:
        say((made.stdout + made.stderr).decode(errors="replace").strip())
        say(f"On Debian and Ubuntu: apt install python{sysconfig.get_python_version()}-venv")
        raise subprocess.CalledProcessError(made.returncode, made.args)


def works(python: Path) -> bool:
    """Whether the environment's interpreter runs and is of this version."""
    if not python.exists():
        return False
    code = "import sys, pip; print(sys.version_info[:2])"
    asked = subprocess.run([str(python), "-c", code], check=False, capture_output=True, text=True)
    return asked.returncode == 0 and asked.stdout.strip() == str(sys.version_info[:2])


def fingerprint(extras: list[str]) -> str:
    """Digest of what decides the environment's content, and the extras asked for."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return f"{digest.hexdigest()} {ROOT} {','.join(sorted(extras))}"


def covers(have: str, wanted: str) -> bool:
    """Whether an environment stamped `have` holds all of `wanted` (more extras do no harm)."""
    have_base, _, have_extras = have.rpartition(" ")
    base, _, extras = wanted.rpartition(" ")
    return have_base == base and set(filter(None, extras.split(","))) <= set(have_extras.split(","))


def run(command: list[str]) -> None:
    """Run a step with its output on the terminal."""
    subprocess.run(command, check=True)


def say(text: str) -> None:
    """One line of ours among pip's."""
    sys.stderr.write(f"setup: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
