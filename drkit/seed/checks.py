"""Checks before a seed begins, and before anything is removed for it. Without requests to clusters or Spark."""

from __future__ import annotations

from collections.abc import Mapping

from drkit.mirror.transform.rebuild_reasons import how_forwarded
from drkit.model.errors import ConfigError, Refused
from drkit.model.topology import Link

PORT = "spark.drkit.seed.port"
"""Spark property: the port at which the driver listens for the seed's tasks (any that is free by default)."""

_SPECULATION = "spark.speculation"
_LAST_PORT = 65_535


def check_seedable(link: Link) -> None:
    """Raise Refused where Spark can't seed a link: tasks forward batches, and know nothing of what alters records.

    The way back of a link (what a failback seeds) alters none.
    """
    if link.alters:
        reason = how_forwarded(link)
        raise Refused(f"{link.id} can't be seeded by Spark: {reason}", remedy="Leave --engine out: the mirror seeds it")


def seed_port(properties: Mapping[str, str]) -> int:
    """Check the Spark properties that matter for a seed; returns the port to listen at (0: any).

    Raises:
        ConfigError: a property is incompatible with a seed.
    """
    if properties.get(_SPECULATION, "false").strip().lower() == "true":
        raise ConfigError(
            f"{_SPECULATION} is true: Spark would start second copies of the seed's tasks and kill the first",
            remedy=f"Give --spark-conf {_SPECULATION}=false",
        )
    port = properties.get(PORT) or "0"
    if not (port.isascii() and port.isdecimal()) or int(port) > _LAST_PORT:
        raise ConfigError(f"{PORT} is {port!r}", remedy=f"Give the number of a port, up to {_LAST_PORT}; 0: any")
    return int(port)
