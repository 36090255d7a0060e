"""drkit as the base installation has it: a process in which what the extras bring can't be found.

    python tests/support/base_install.py MODULE,… < commands.json > ended.json

Runs the commands of the list one after the other in one process, and writes the exit code and the output of each; with
them doctor's check of the installation, and what a mirror's log says where it finds small batches. Without a module
it runs in what is really installed.
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
    """Make these top-level modules as if they were not installed."""

    class Without(PathFinder):
        @classmethod
        def find_spec(cls, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
            if fullname.partition(".")[0] in modules:
                return None
            return PathFinder.find_spec(fullname, path, target)

    sys.meta_path[sys.meta_path.index(PathFinder)] = Without


def ran(arguments: list[str]) -> dict[str, Any]:
    """A command's exit code and what it wrote."""
    from drkit.cli.application import run  # noqa: PLC0415 - once the modules are hidden

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: object = run(arguments)
        except BaseException as error:  # noqa: BLE001 - a trace is what the test looks for
            code = repr(error)
    return {"command": arguments, "code": code, "out": out.getvalue(), "err": err.getvalue()}


def small_batches() -> list[str]:
    """What the mirror's log says where small batches are found, twice."""
    from drkit.kafka import compiled  # noqa: PLC0415 - as above
    from drkit.kafka.compiled.limits import ENOUGH  # noqa: PLC0415 - as above

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
    """See the module."""
    hide(set(sys.argv[1].split(",")))
    from drkit.observe.readiness.readiness import installation  # noqa: PLC0415 - as above

    found = [ran(arguments) for arguments in json.load(sys.stdin)]
    check = installation()
    about = {"outcome": check.outcome.value, "reason": check.reason, "remedy": check.remedy}
    json.dump({"commands": found, "doctor": about, "small_batches": small_batches()}, sys.stdout)


if __name__ == "__main__":
    main()
