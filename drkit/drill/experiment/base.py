"""The base of an experiment file's types: unknown keys are errors; clusters, links and durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

SOURCE: Final = "primary"
TARGET: Final = "dr"
DEFAULT_LINK: Final = f"{SOURCE}->{TARGET}"
"""The link of an experiment that names none."""
_ALIAS: Final = "[a-z][a-z0-9_]{0,30}"
Cluster = Annotated[str, Field(pattern=f"^{_ALIAS}$")]
"""A cluster's alias. Without a hyphen: the nodes of `east` are `east-1` …"""
LinkName = Annotated[str, Field(pattern=f"^{_ALIAS}->{_ALIAS}$")]
"""`source->target`."""
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class DrillModel(BaseModel):
    """A typed, frozen part of the file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class OfLink(DrillModel):
    """A part that concerns the workload of one link."""

    link: LinkName = DEFAULT_LINK


class LinkSpec(DrillModel):
    """A link of the experiment's lab: one direction between two of its clusters.

    `policy`: as in `drkit.toml`: `prefix` names topics on the target `SOURCE.TOPIC`; `topics`: regular expressions of
    whole names.
    """

    source: Cluster
    target: Cluster
    policy: Literal["identity", "prefix"] = "identity"
    topics: list[str] = Field(default=[".*"], min_length=1)

    @property
    def name(self) -> str:
        """`source->target`."""
        return f"{self.source}->{self.target}"

    @property
    def clusters(self) -> tuple[str, str]:
        """Source and target."""
        return self.source, self.target

    def topic_on(self, cluster: str, topic: str) -> str:
        """The name of a topic of the source on one of the link's clusters."""
        return f"{self.source}.{topic}" if (cluster, self.policy) == (self.target, "prefix") else topic


def of_link(link: str | None) -> str:
    """How a description names a link; nothing for the default one."""
    return "" if link in (None, DEFAULT_LINK) else f" of {link}"


def of_links(links: Sequence[str]) -> str:
    """How the description of a run names its links; nothing where it names none."""
    return f" of {', '.join(links)}" if links else ""
