"""`python -m tools.manual site FOLDER` builds the site, `python -m tools.manual man FOLDER` writes the man pages."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    """0 where all was built without a warning."""
    parser = argparse.ArgumentParser(prog="python -m tools.manual", description=__doc__)
    parser.add_argument("what", choices=("site", "man"))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "man":
        from tools.manual.man_pages import write_man_pages  # noqa: PLC0415  # it loads every verb

        found = write_man_pages(arguments.folder)
        sys.stdout.write(f"{len(found)} man pages: man -M {arguments.folder} drkit-failover\n")
        return 0
    from tools.manual.site import build_site  # noqa: PLC0415  # needs the extra `docs`

    code = build_site(arguments.folder)
    if code == 0:
        sys.stdout.write(f"{arguments.folder / 'html' / 'index.html'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
