"""SIGKILL."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import Kill
from drkit.model.errors import Refused


def kill(env: DrillEnvironment, fault: Kill) -> str:
    """SIGKILL a node: it is gone at once, with its unwritten data.

    Raises:
        Refused: it was not running.
    """
    node = fault.node
    if node == "mirror":
        mirror = env.the_mirror()
        mirror.kill()
        return f"the mirror (pid {mirror.pid}) is killed"
    if node == "run":
        run = env.the_run()
        run.kill()
        run.wait()
        return f"the run (pid {run.pid}) is killed"
    killed = env.lab.kill(node)
    if not killed:
        raise Refused(f"{node} was not running, so it can't be killed", remedy="Check the steps before this one")
    return f"killed {', '.join(killed)}"
