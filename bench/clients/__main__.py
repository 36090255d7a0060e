"""`python -m bench.clients`: measures every kind of client in every kind of disaster."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.clients.client import Kind, built_go, go, kinds
from bench.clients.disaster import BY_ADDRESS, BY_DNS, BY_RESTART, Plan, network_lacks, play, set_up_network
from bench.clients.table import Results
from bench.processes import in_namespace, run_in_namespace, say
from bench.report import machine
from drkit.lab.toolchain import ensure
from drkit.model.errors import DrkitError

_GO_PROGRAM = "--go-program"
_LIMITS = {"killed": 150.0, "vanished": 330.0}  # the default trigger of KIP-1102 is 300 s
_FINDS_BY = (BY_DNS, BY_ADDRESS, BY_RESTART)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the results; returns 0 even if it can't measure here, with the reason."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _options(given)
    lacks = network_lacks()
    if lacks:
        print(f"skipped: {lacks}")
        return 0
    toolchain = ensure("kafka", "mirrormaker", "clients-3.9", "cassandra")  # while there is still a network
    if not in_namespace():
        if options.go_program is not None:
            return run_in_namespace("bench.clients", given, "--mount")
        with tempfile.TemporaryDirectory(prefix="drkit-go-") as build:
            try:
                made = [_GO_PROGRAM, str(built_go(Path(build)))]
            except DrkitError as error:
                made = [f"{_GO_PROGRAM}={error.what}"]
            return run_in_namespace("bench.clients", [*given, *made], "--mount")
    measured: list[Kind] = kinds(toolchain)
    not_run = {}
    program = Path(options.go_program or "")
    if program.is_file():
        measured.append(go(program))
    else:
        not_run["franz-go"] = options.go_program
    measured = [kind for kind in measured if not options.kind or kind.name in options.kind]
    results = Results(
        machine(toolchain),
        {kind.name: kind.title for kind in measured},
        {kind.name: {name: dict(chosen) for name, chosen in kind.variants.items()} for kind in measured},
        not_run,
    )
    with tempfile.TemporaryDirectory(prefix="drkit-clients-") as name:
        work = Path(name)
        set_up_network(work)
        for way in options.way or _LIMITS:
            for finds_by in options.finds_by or _FINDS_BY:
                folder = work / f"{way}-{finds_by}"
                folder.mkdir()
                plan = Plan(way, finds_by, options.limit or _LIMITS[way])
                disaster = play(plan, measured, folder, say)
                results = replace(results, disasters=[*results.disasters, disaster])
                results.write(options.out)
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("--way", action="append", choices=list(_LIMITS), help="how primary is lost (default: each)")
    parser.add_argument("--finds-by", action="append", choices=list(_FINDS_BY), help="default: each")
    parser.add_argument("--kind", action="append", help="of client (default: each)")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="how long to wait for clients")
    parser.add_argument("--out", type=Path, default=Path("bench/out/clients.json"), help="where results go")
    parser.add_argument(_GO_PROGRAM, help="the compiled application on franz-go (default: compile it)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
