"""Ask an advisory database about the Python packages that drkit is installed with. Standard library only.

    python3 -m tools.advisories [--requirements FILE] [further options of pip-audit, such as --ignore-vuln ID]

pip-audit asks (in an environment of its own, build/advisories). It ends with 0 and "no known vulnerabilities" where a
registry answers without an advisory database behind it, so each service is asked first about a release whose
vulnerabilities are long known: one that knows none of them has told nothing of the others, either.

Exit codes: 0 asked, nothing is known; 1 something is known; 3 not asked, or not about all, and nothing is known.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.bootstrap import ROOT, make_venv, works

TOOL = "pip-audit==2.10.1"
SERVICES = ("pypi", "osv")
KNOWN = "urllib3==1.24.1"
"""A release of 2018 with published vulnerabilities."""
NOTHING, SOMETHING, NOT_ASKED = 0, 1, 3
_SECONDS = 600
_SHOWN = 10


@dataclass
class Answer:
    """What a service said. `found`: a line for each vulnerability; `skipped`: packages that it doesn't know;
    `failure`: why there is no answer at all, or None."""

    found: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failure: str | None = None


Ask = Callable[[str, Path], Answer]
"""Asks a service about the pinned packages of a requirements file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, and say what came of it; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requirements", type=Path, default=ROOT / "constraints.txt", help="pinned packages")
    own, others = parser.parse_known_args(arguments)
    if not own.requirements.is_file():
        parser.error(f"--requirements: there is no file {own.requirements}")
    try:
        tool = installed(ROOT / "build" / "advisories")
    except (subprocess.SubprocessError, OSError) as error:
        say(f"NOT ASKED: {TOOL} can't be installed: {error}")
        return NOT_ASKED
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "known.txt"
        known.write_text(f"{KNOWN}\n")
        return check(own.requirements, known, lambda service, file: asked(tool, service, file, others))


def check(requirements: Path, known: Path, ask: Ask) -> int:
    """Ask the first service that knows what is known; the exit code."""
    reasons = []
    for service in SERVICES:
        probe = ask(service, known)
        if not probe.found:
            reasons.append(f"{service}: {probe.failure or f'it knows no vulnerability of {KNOWN}, which has some'}")
            continue
        answer = ask(service, requirements)
        if answer.failure is None:
            return told(service, answer)
        reasons.append(f"{service}: {answer.failure}")
    say(f"NOT ASKED: no advisory database answers ({'; '.join(reasons)}). Nothing is known of the dependencies")
    return NOT_ASKED


def told(service: str, answer: Answer) -> int:
    """Say what a service knows; the exit code."""
    for line in answer.found:
        say(line)
    if answer.skipped:
        more = f" and {len(answer.skipped) - _SHOWN} more" if len(answer.skipped) > _SHOWN else ""
        say(f"NOT ASKED about {', '.join(answer.skipped[:_SHOWN])}{more}: {service} doesn't know them")
    if answer.found:
        say(f"{len(answer.found)} known to {service}: raise these in constraints.txt, or accept with --ignore-vuln ID")
        return SOMETHING
    say(f"{service} knows no vulnerability of {'the others' if answer.skipped else 'any dependency'}")
    return NOT_ASKED if answer.skipped else NOTHING


def installed(venv: Path) -> Path:
    """pip-audit in an environment of its own, made where there is none.

    Raises:
        CalledProcessError: it can't be made, or the registry doesn't give it.
    """
    python = venv / "bin" / "python"
    tool, stamp = venv / "bin" / "pip-audit", venv / ".tool"
    if tool.exists() and works(python) and stamp.exists() and stamp.read_text() == TOOL:
        return tool
    make_venv(venv)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--retries", "1"]
    subprocess.run([*pip, TOOL], check=True, timeout=_SECONDS)
    stamp.write_text(TOOL)
    return tool


def asked(tool: Path, service: str, requirements: Path, others: Sequence[str]) -> Answer:
    """Have pip-audit ask a service."""
    command = [str(tool), "--requirement", str(requirements), "--no-deps", "--disable-pip", "--format", "json"]
    command += ["--vulnerability-service", service, "--progress-spinner", "off", *others]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return Answer(failure=f"no answer within {_SECONDS} s")
    return read(done.stdout, done.stderr)


def read(report: str, messages: str) -> Answer:
    """pip-audit's JSON as an answer; none where it wrote no report."""
    try:
        dependencies = json.loads(report)["dependencies"]
    except (ValueError, KeyError):
        last = messages.strip().splitlines()[-1:] or ["pip-audit wrote no report"]
        return Answer(failure=last[0][:300])
    answer = Answer()
    for each in dependencies:
        if "skip_reason" in each:
            answer.skipped.append(each["name"])
        for known in each.get("vulns", ()):
            fixed = ", ".join(known["fix_versions"]) or "no release yet"
            names = "/".join([known["id"], *known["aliases"]])
            answer.found.append(f"{each['name']} {each['version']}: {names}, mended in {fixed}")
    return answer


def say(text: str) -> None:
    """One line of ours."""
    sys.stderr.write(f"advisories: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
