"""`python -m drkit.lab.toolchain lock [SET…]` writes lock files again. (`drkit jars fetch` fills the cache.)"""

from __future__ import annotations

import argparse
import sys

from drkit.lab.toolchain.make_lock import SETS, make_locks
from drkit.model.errors import DrkitError


def main() -> int:
    """Parse the command line and run it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m drkit.lab.toolchain", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    lock = verbs.add_parser("lock", help="resolve the sets and write their lock files")
    lock.add_argument("sets", nargs="*", help=f"default: all ({', '.join(sorted(SETS))})")
    arguments = parser.parse_args()
    try:
        make_locks(arguments.sets or sorted(SETS))
    except DrkitError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
