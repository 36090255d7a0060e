"""`python -m drkit.lab.toolchain lock [SET…]` makes lock files anew; `… fetch [SET…]` fills the cache."""

from __future__ import annotations

import argparse
import sys

from drkit.lab.toolchain import ensure, known_sets
from drkit.lab.toolchain.make_lock import SETS, make_locks
from drkit.model.errors import DrkitError

_PEERS = ("mirrormaker", "spark")
"""Sets that only benchmarks need: what drkit is compared with."""


def main() -> int:
    """Parse the command line and run it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m drkit.lab.toolchain", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    lock = verbs.add_parser("lock", help="resolve the sets and write their lock files")
    lock.add_argument("sets", nargs="*", help=f"default: all ({', '.join(sorted(SETS))})")
    fetch = verbs.add_parser("fetch", help="fetch what is missing into the cache")
    fetch.add_argument("sets", nargs="*", help="default: kafka cassandra")
    arguments = parser.parse_args()
    try:
        if arguments.verb == "lock":
            make_locks(arguments.sets or sorted(SETS))
        else:
            ensure(*(arguments.sets or [name for name in known_sets() if name not in _PEERS]))
    except DrkitError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what was fetched is kept\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
