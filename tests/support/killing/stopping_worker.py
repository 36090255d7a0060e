"""A mirror that stops itself (SIGSTOP), or kills itself, right before a call, once it is told to.

    python -m tests.support.killing.stopping_worker CONFIG METHOD FILE [SIGNAL]

METHOD is one of `ClusterAdmin`, or else of the store; the signal comes before its first call after FILE exists.
Everything else is real.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

from drkit.config import load_config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.store import open_store


def main(path: str, method: str, told: Path, number: int = signal.SIGSTOP) -> None:
    """Run the mirror of the configuration's first link until its link is sealed."""
    config = load_config(Path(path))
    store = open_store(config.store.plain_url)
    owner: Any = ClusterAdmin if hasattr(ClusterAdmin, method) else type(store)
    real = getattr(owner, method)

    def stopping(*given: Any, **named: Any) -> Any:
        if told.exists():
            told.unlink()
            with store._db.reading():  # so that no thread stops within a write, which would lock out all others
                signal.pthread_kill(threading.get_ident(), number)  # this thread: it sends nothing more first
        return real(*given, **named)

    setattr(owner, method, stopping)
    try:
        MirrorRuntime(config, config.links[0].link(), store, topic_seconds=0.3).run()
    finally:
        store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *map(int, sys.argv[4:]))
