"""One way of comparing two clusters, in a process of its own so that what it uses can be measured.

`python -m bench.audit_child WAY JOB`: compares a small topic, so that everything is started and warm, and says `warm`;
then compares each topic that a line of stdin names, and says in a line of JSON what it found. JOB is JSON: the
fields of `bench.audit_ways.Job`.
"""

from __future__ import annotations

import json
import sys
import time

from bench.audit_ways import WAYS, Job


def main() -> None:
    """Compare once warm, then as requested."""
    way, job = WAYS[sys.argv[1]], Job(**json.loads(sys.argv[2]))
    way(job, job.warm)
    print("warm", flush=True)
    for line in sys.stdin:
        began = time.monotonic()
        found = way(job, line.strip())
        print(json.dumps({"seconds": time.monotonic() - began, "found": found}), flush=True)


if __name__ == "__main__":
    main()
