"""Who began a run, with what: the first entry of its journal says it. Nothing of it decides anything."""

from __future__ import annotations

from typing import Any

from drkit import __version__
from drkit.config import Config
from drkit.config.digest import configuration_digest


def origin_of(config: Config, operator: str) -> dict[str, Any]:
    """What is journaled of the moment a run begins. `operator`: user@host, as in the lease."""
    return {
        "operator": operator,
        "drkit": __version__,
        "configuration_digest": configuration_digest(config),
        "objectives": config.objectives.model_dump(),
        "links": [f"{link.source}->{link.target}" for link in config.links],
        "witness": config.evidence.witness,
    }
