"""The faults of a drill, one function each: it injects the fault and returns what was done, in words.

A node is one of the lab's (an alias means all its nodes), `mirror`, the mirror's process, or `run`, that of a failover
or failback which stands still at a stage.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

from drkit.drill.environment.environment import DrillEnvironment
from drkit.model.errors import Refused


def kill(env: DrillEnvironment, node: str) -> str:
    """SIGKILL a node: it is gone at once, with whatever it had not written.

    Raises:
        Refused: none of it was running.
    """
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
        raise Refused(f"{node} was not running, so it can't be killed", remedy="Look at the steps before this one")
    return f"killed {', '.join(killed)}"


def pause(env: DrillEnvironment, node: str) -> str:
    """SIGSTOP a node: it hangs; its connections stay open and nothing answers."""
    if node == "mirror":
        mirror = env.the_mirror()
        mirror.send(signal.SIGSTOP)
        return f"the mirror (pid {mirror.pid}) is paused"
    return f"paused {', '.join(env.lab.pause(node))}"


def resume(env: DrillEnvironment, node: str) -> str:
    """SIGCONT a paused node; one that isn't paused is left as it is."""
    if node == "mirror":
        mirror = env.the_mirror()
        mirror.send(signal.SIGCONT)
        return f"the mirror (pid {mirror.pid}) continues"
    return f"resumed {', '.join(env.lab.resume(node))}"


def restart(env: DrillEnvironment, node: str) -> str:
    """Stop a node in order where it runs, and start it on the same ports and data. Returns when it answers."""
    if node == "mirror":
        mirror = env.the_mirror()
        mirror.restart()
        return f"the mirror runs again (pid {mirror.pid})"
    return f"restarted {', '.join(env.lab.restart(node, say=env.say))}"


FAULTS: Final[dict[str, Callable[[DrillEnvironment, str], str]]] = {
    "kill": kill,
    "pause": pause,
    "resume": resume,
    "restart": restart,
}
