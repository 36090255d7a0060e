"""`python -m drkit.audit.spark.python_daemon`: Spark's daemon of Python workers, with what their tasks need loaded.

Workers are forked from it, so each has drkit's modules at once; by itself each would import them, half a second of CPU.
For workers on this machine only: elsewhere drkit arrives as an archive, after the daemon has started.
"""

from __future__ import annotations

from typing import Any

from pyspark import daemon

import drkit.audit.compare.merge_join_tasks  # noqa: F401 - loaded for the workers


def main() -> None:
    """Serve Spark's JVM until it ends."""
    manager: Any = daemon.manager  # untyped in PySpark
    manager()


if __name__ == "__main__":
    main()
