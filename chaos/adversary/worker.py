"""Runs `drkit` with shorter timeouts, fault points, late responses and planted defects, as the adversary's mirror.

    python -m chaos.adversary.worker CONTROL PLANT verb …        PLANT "-": none

drkit itself has no code for this: everything is patched in here, before its verbs are loaded.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from chaos.adversary.fault_points import FaultPoints, LateAnswers, told_in
from chaos.adversary.plants import plant

_CLOCKS = {
    ("drkit.mirror.workers.leader_lease", "TTL_SECONDS"): 4.0,
    ("drkit.mirror.workers.leader_lease", "MARGIN_SECONDS"): 1.0,
    ("drkit.mirror.workers.membership", "SESSION_SECONDS"): 2.5,
    ("drkit.mirror.workers.membership", "_HEARTBEAT_SECONDS"): 0.4,
}
"""Module constants for a quick takeover; set before other modules copy them."""

_TOPIC_SECONDS = 1.0


def main() -> None:
    """Patch, then run `drkit`."""
    control, planted, *arguments = sys.argv[1:]
    for (module, name), seconds in _CLOCKS.items():
        found = import_module(module)
        getattr(found, name)  # fails if the constant was renamed
        setattr(found, name, seconds)
    runtime = import_module("drkit.mirror.runtime.mirror_runtime").MirrorRuntime.__init__
    runtime.__kwdefaults__["topic_seconds"] = _TOPIC_SECONDS
    FaultPoints(Path(control)).install()
    LateAnswers(told_in(Path(control))).install()
    plant(planted)
    sys.argv[1:] = arguments
    import_module("drkit.cli.main").main()


if __name__ == "__main__":
    main()
