"""drkit in the base installation: a process in which the packages of the extras can't be found.

    python tests/support/commands/base_install.py MODULE,… < commands.json > ended.json

Runs the commands of the list one after the other in one process, and writes the exit code and the output of each;
besides, doctor's check of the installation, and the log of a mirror that finds small batches. Without a module it runs
in the real installation.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


def hide(modules: set[str]) -> None:
    """Hide these top-level modules, as if they were not installed."""

    class Without(PathFinder):
        @classmethod
        def find_spec(cls, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
            if fullname.partition(".")[0] in modules:
                return None
            return PathFinder.find_spec(fullname, path, target)

    sys.meta_path[sys.meta_path.index(PathFinder)] = Without


def ran(arguments: list[str]) -> dict[str, Any]:
    """A command's exit code and output."""
    from drkit.cli.application import run  # noqa: PLC0415 - once the modules are hidden

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: object = run(arguments)
        except BaseException as error:  # noqa: BLE001 - a trace is what the test looks for
            code = repr(error)
    return {"command": arguments, "code": code, "out": out.getvalue(), "err": err.getvalue()}


def small_batches() -> list[str]:
    """The mirror's log after it found small batches, twice."""
    from drkit.kafka import compiled  # noqa: PLC0415 - as above
    from drkit.kafka.compiled import ENOUGH  # noqa: PLC0415 - as above

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    compiled.log.addHandler(handler)
    compiled.found(ENOUGH)
    for thread in [each for each in compiled.threading.enumerate() if each.name == "drkit-compiled"]:
        thread.join()
    compiled.found(ENOUGH)
    return said


def main() -> None:
    """Run the command line; see the module docstring."""
    hide(set(sys.argv[1].split(",")))
    from drkit.observe.readiness.readiness import installation  # noqa: PLC0415 - as above

    found = [ran(arguments) for arguments in json.load(sys.stdin)]
    check = installation()
    about = {"outcome": check.outcome.value, "reason": check.reason, "remedy": check.remedy}
    json.dump({"commands": found, "doctor": about, "small_batches": small_batches()}, sys.stdout)


if __name__ == "__main__":
    main()
