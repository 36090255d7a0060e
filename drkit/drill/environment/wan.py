"""A drill's network between drkit and the primary, which network faults disturb.

The lab's brokers advertise a listener at another loopback address; there `wan_proxy.py` listens, on the same ports.
drkit's configuration names that address while the proxy runs, so only drkit's commands go through it: the applications
run beside the primary.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from drkit.drill.environment.child_processes import Child
from drkit.drill.environment.wan_proxy import NetworkState
from drkit.drill.experiment.base import SOURCE
from drkit.files import write_atomically
from drkit.lab import Lab
from drkit.model.errors import DrkitError, Refused

LISTENER: Final = "wan"
PROXY: Final = "127.0.0.2"
"""The primary's address for drkit: any address of 127/8 is loopback on Linux."""
BROKERS: Final = "127.0.0.1"
LISTENERS: Final = {LISTENER: {"security.protocol": "PLAINTEXT", "advertised.host": PROXY}}
"""The settings of a lab with such a network."""
_SECONDS: Final = 15.0


class Wan:
    """The proxy's process, and its state.

    Args:
        folder: holds its state and its log.
        ports: the ports of the listeners behind it.

    Raises:
        DrkitError: it does not start: this machine has no such address, or a port is taken.
    """

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self._config: tuple[Path, str, str] | None = None
        self._control = folder / "network.json"
        self.state = NetworkState()
        self.state.write(self._control)
        self._seen = self._control.with_suffix(".seen")
        self._seen.unlink(missing_ok=True)
        arguments = ["-m", "drkit.drill.environment.wan_proxy", str(self._control), str(os.getpid()), PROXY, BROKERS]
        self._child = Child("network", [*arguments, *map(str, ports)], folder / "network.log", folder)
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    @classmethod
    def of(cls, lab: Lab, folder: Path) -> Wan:
        """The proxy of a lab, with drkit's configuration there pointing to it.

        Raises:
            Refused: the lab has no listener for it.
            DrkitError: see the class.
        """
        ports = [node.listener_ports.get(LISTENER) for node in lab.nodes if node.cluster == SOURCE]
        known = [port for port in ports if port is not None]
        if len(known) < len(ports):
            raise Refused(
                f"the lab in {lab.dir} has no network to {SOURCE} that could be disturbed",
                meaning="The experiment needs brokers with another listener",
                remedy="Leave --dir out: the drill creates its own lab",
            )
        wan = cls(folder, known)
        wan.route_through(lab.config_path, lab.bootstrap(SOURCE), ",".join(f"{PROXY}:{port}" for port in known))
        return wan

    def route_through(self, config: Path, direct: str, proxied: str) -> None:
        """Let a configuration name the proxy instead of the primary, until the proxy is closed."""
        _replace(config, direct, proxied)
        self._config = config, proxied, direct

    def change(self, **what: Any) -> None:
        """Set the state of the network; returns when it is in force.

        Raises:
            DrkitError: its process died.
        """
        self.state = replace(self.state, **what, number=self.state.number + 1)
        self.state.write(self._control)
        self._wait()

    def heal(self) -> None:
        """End all disturbances."""
        self.change(**_HEALED)

    def close(self) -> None:
        """End its process and with it every connection. The configuration names the primary itself again."""
        self._child.stop()
        if self._config is not None:
            _replace(*self._config)
            self._config = None

    def _wait(self) -> None:
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline and self._child.exit_code() is None:
            if self._seen.exists() and self._seen.read_text(encoding="utf-8") == str(self.state.number):
                return
            time.sleep(0.01)
        raise DrkitError(
            f"the network to {SOURCE} can't be disturbed: its proxy does not answer ({self._child.ending()})",
            remedy=f"It listens on {PROXY}, which every Linux has; elsewhere add it to the loopback interface",
        )


def _replace(config: Path, address: str, other: str) -> None:
    text = config.read_text(encoding="utf-8")
    write_atomically(config, text.replace(f'"{address}"', f'"{other}"'))


_HEALED: Final[dict[str, Any]] = {
    "delay_ms": 0.0,
    "jitter_ms": 0.0,
    "loss": 0.0,
    "kilobytes_per_second": 0.0,
    "blocked": (),
    "forgets": False,
}
