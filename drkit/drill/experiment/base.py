"""What the parts of an experiment file rest on: its types' base (unknown keys are errors), and YAML with lines.

An error in an experiment names the line to correct. PyYAML drops lines once a document is constructed, and silently
keeps the last of two equal keys; so `read_marked` walks the node tree, and returns plain data and each element's line.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from drkit.model.errors import ConfigError

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


# --- YAML with the line of every key -------------------------------------------------------------------------------

Place = tuple[str | int, ...]
"""A path into a document: keys of mappings and positions in lists."""


@dataclass(frozen=True, slots=True)
class MarkedDocument:
    """A YAML document as plain data, with the line (1-based) of every key and list item."""

    file: Path
    data: Any
    lines: dict[Place, int]

    def line(self, place: Place) -> int:
        """The line of an element; of the nearest one above it if it isn't in the file."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


class _Reader:
    """Converts one node tree to data, and records lines."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines: dict[Place, int] = {}
        self._scalars = yaml.constructor.SafeConstructor()

    def error(self, node: Node, message: str) -> ConfigError:
        return ConfigError(f"{self.file}:{_line(node)}: {message}", remedy="Correct that line")

    def value(self, node: Node, place: Place, above: tuple[Node, ...]) -> Any:
        if node in above:
            raise self.error(node, "an anchor that contains itself")
        self.lines.setdefault(place, _line(node))
        if isinstance(node, MappingNode):
            return self.mapping(node, place, (*above, node))
        if isinstance(node, SequenceNode):
            return [self.value(item, (*place, number), (*above, node)) for number, item in enumerate(node.value)]
        if _is_time(node):
            return node.value
        try:
            return self._scalars.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError) as error:
            raise self.error(node, f"not a value that can be read: {error}") from None

    def mapping(self, node: MappingNode, place: Place, above: tuple[Node, ...]) -> dict[Hashable, Any]:
        found: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                raise self.error(key_node, "a key must be a plain word")
            # A key keeps its text: YAML 1.1 would read `on` as true and `1` as a number.
            key = key_node.value
            if key in found:
                raise self.error(key_node, f"the key {key!r} is there twice")
            self.lines[(*place, key)] = _line(key_node)
            found[key] = self.value(value_node, (*place, key), above)
        return found


def _is_time(node: Node) -> bool:
    """Times stay text: YAML 1.1 would read 14:03 as the number 843."""
    return node.tag == "tag:yaml.org,2002:timestamp" or (
        node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float") and ":" in node.value
    )


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def read_marked(file: Path) -> MarkedDocument:
    """Read one YAML document.

    Raises:
        ConfigError: no such file, not readable, not YAML, more than one document, a key given twice;
            the message names the file and the line.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"no experiment at {file}", remedy="Give the path of an experiment file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} can't be read: {error}", remedy="Check the path and its permissions") from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise ConfigError(f"{file} is empty", remedy="An experiment has at least a title and a method")
        reader = _Reader(file)
        return MarkedDocument(file, reader.value(root, (), ()), reader.lines)
    except RecursionError:
        raise ConfigError(f"{file}: not an experiment: it is nested too deeply", remedy="Correct the file") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = 1 if mark is None else mark.line + 1
        raise ConfigError(f"{file}:{line}: not valid YAML: {error.problem}", remedy="Correct that line") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not valid YAML: {error}", remedy="Correct the file") from None
