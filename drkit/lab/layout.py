"""A lab's folder and layout: its paths, its nodes, ports and ids, and the file that holds them.

lab.json: nodes, ports, options, written once, when the lab is created. drkit.toml: the configuration for
every other command. secure/: certificates and passwords of a secured lab.
nodes/NAME/: one node's configuration, data/, log/, and process.json.
"""

from __future__ import annotations

import base64
import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

from drkit.files import write_atomically
from drkit.lab.ports import free_ports
from drkit.lab.secure import LISTENER, SecureDir
from drkit.model.errors import ConfigError, DrkitError, Refused
from drkit.model.wording import counted

StoreKind = Literal["cassandra", "sqlite"]
NodeKind = Literal["kafka", "cassandra"]
FORMAT = 1
CASSANDRA = "cassandra"
_OWN_FILES = ("lab.json", "drkit.toml", "drkit.db", "drkit.db-wal", "drkit.db-shm")


@dataclass(frozen=True, slots=True)
class Node:
    """One process of the lab. `cluster`: the alias of its cluster (`cassandra` for the store's).

    `peer_port`: a broker's controller listener, Cassandra's storage port. `sasl_port`: a broker's second
    listener, for the lab's users; 0: none. `listener_ports`: those of its further listeners, by name.
    """

    name: str
    kind: NodeKind
    cluster: str
    node_id: int
    port: int
    peer_port: int
    sasl_port: int = 0
    listener_ports: dict[str, int] = field(default_factory=dict, hash=False)

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports on which its process listens."""
        own = (self.port, self.peer_port, self.sasl_port, *self.listener_ports.values())
        return tuple(port for port in own if port)

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a lab; they never change. `cluster_ids`: by alias.

    `users`: passwords by name, for labs with an authorizer; clients of the plain listener are super users there.
    `listeners`: the brokers' further listeners by name, each with its settings without Kafka's `listener.name.NAME.`,
    and with `security.protocol`. `releases`: clusters that run another Kafka release than the others, with its set of
    jars. `secure`: clients are users with passwords, over TLS, with an authorizer (`drkit.lab.secure`).
    `store_config`: settings of Cassandra that override the lab's own. `broker_jvm`: the brokers' heap, collector and
    compilers, in place of the lab's small ones.
    """

    brokers: int
    store: StoreKind | None
    clusters: tuple[str, ...]
    cluster_ids: dict[str, str]
    nodes: tuple[Node, ...]
    broker_config: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    listeners: dict[str, dict[str, str]] = field(default_factory=dict)
    releases: dict[str, str] = field(default_factory=dict)
    secure: bool = False
    store_config: dict[str, object] = field(default_factory=dict)
    broker_jvm: list[str] = field(default_factory=list)

    def jar_set(self, node: Node) -> str:
        """The set of jars of a node."""
        return self.releases.get(node.cluster, node.kind)

    def select(self, names: tuple[str, ...]) -> list[Node]:
        """The nodes with these names; an alias means all its nodes.

        Raises:
            ConfigError: a name that is neither; the message lists all names.
        """
        chosen: list[Node] = []
        for name in names:
            found = [node for node in self.nodes if name in (node.name, node.cluster)]
            if not found:
                aliases = list(dict.fromkeys(node.cluster for node in self.nodes))
                raise ConfigError(
                    f"this lab has no node {name!r}",
                    remedy=f"Its nodes are {', '.join(node.name for node in self.nodes)}; "
                    f"an alias means all its nodes: {', '.join(aliases)}",
                )
            chosen += [node for node in found if node not in chosen]
        return chosen

    def peers(self, cluster: str) -> list[Node]:
        """The nodes of a cluster."""
        return [node for node in self.nodes if node.cluster == cluster]


@dataclass(frozen=True, slots=True)
class LabDir:
    """The paths in a lab's folder."""

    path: Path

    @property
    def config(self) -> Path:
        """The drkit.toml of this lab."""
        return self.path / "drkit.toml"

    @property
    def layout_file(self) -> Path:
        """The layout file, which marks the folder of a lab."""
        return self.path / "lab.json"

    def node(self, name: str) -> Path:
        """A node's folder."""
        return self.path / "nodes" / name

    def process_file(self, name: str) -> Path:
        """The file with a node's pid and start time."""
        return self.node(name) / "process.json"

    def log_dir(self, name: str) -> Path:
        """A node's logs."""
        return self.node(name) / "log"

    @property
    def secure(self) -> SecureDir:
        """Certificates and passwords of a secured lab."""
        return SecureDir(self.path / "secure")

    def write_layout(self, layout: Layout) -> None:
        """Write the layout; from now on the folder is a lab's."""
        write_atomically(self.layout_file, json.dumps({"format": FORMAT, **asdict(layout)}, indent=2) + "\n")

    def read_layout(self) -> Layout | None:
        """The layout; None if the folder holds no lab.

        Raises:
            DrkitError: the file is damaged or of another version.
        """
        try:
            return _layout(json.loads(self.layout_file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DrkitError(
                f"{self.layout_file} can't be read: {error}",
                remedy=f"End its processes with `drkit lab down --dir {self.path}`, then start the lab again",
            ) from error

    def remove_own(self) -> None:
        """Remove the lab's files, and the folder itself if nothing else is in it."""
        shutil.rmtree(self.path / "nodes", ignore_errors=True)
        shutil.rmtree(self.secure.path, ignore_errors=True)
        for name in _OWN_FILES:
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):  # it holds other files: it stays
            self.path.rmdir()


def _layout(data: Mapping[str, object]) -> Layout:
    raw: dict[str, object] = dict(data)
    if raw.pop("format") != FORMAT:
        raise ValueError(f"format {data['format']}, and this drkit knows {FORMAT}")
    nodes = raw.pop("nodes")
    clusters = raw.pop("clusters")
    if not isinstance(nodes, list) or not isinstance(clusters, list):
        raise TypeError("nodes and clusters are lists")
    parsed = tuple(Node(**node) for node in nodes)
    if any(node.kind not in get_args(NodeKind) for node in parsed):
        raise ValueError("a node of an unknown kind")
    return Layout(nodes=parsed, clusters=tuple(clusters), **raw)  # type: ignore[arg-type]  # checked by their use


# --- a new layout --------------------------------------------------------------------------------------------------

_REFUSED_CHARACTERS = set(",:#%$\"'\\\n\r\t")


def usable_folder(path: Path) -> Path:
    """The folder; creates it if necessary.

    Raises:
        Refused: it can't be created or written, or its name would break a configuration file.
    """
    folder = path.expanduser().resolve()
    bad = sorted(_REFUSED_CHARACTERS & set(str(folder)))
    if bad:
        raise Refused(
            f"{folder} can't hold a lab: Kafka's and Cassandra's configuration can't name a path with {' '.join(bad)}",
            remedy="Choose another --dir",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe_file = folder / ".writable"
        probe_file.touch()
        probe_file.unlink()
    except OSError as error:
        raise Refused(
            f"{folder} can't be written: {error.strerror or error}",
            remedy="Choose another --dir, or correct its permissions",
        ) from error
    return folder


def new_layout(
    folder: LabDir,
    brokers: int,
    store: StoreKind,
    clusters: tuple[str, ...],
    broker_config: Mapping[str, str],
    users: Mapping[str, str] | None = None,
    listeners: Mapping[str, Mapping[str, str]] | None = None,
    releases: Mapping[str, str] | None = None,
    *,
    secure: bool = False,
    store_config: Mapping[str, object] | None = None,
    broker_jvm: Sequence[str] = (),
) -> Layout:
    """The layout of a new lab: nodes, free ports, ids for its clusters.

    Raises:
        Refused: the folder holds another drkit.toml, or there aren't enough free ports.
        ConfigError: no broker, a name twice, a user or listener that a broker's configuration can't name, or a
            release for an unknown cluster.
    """
    if folder.config.exists():
        raise Refused(
            f"{folder.config} exists, and {folder.path} holds no lab",
            meaning="A lab writes its own drkit.toml and never overwrites another",
            remedy="Choose another --dir, or move that file away",
        )
    if brokers < 1 or CASSANDRA in clusters or len(set(clusters)) != len(clusters):
        raise ConfigError("a lab has at least one broker per cluster, and each cluster has its own name")
    if not (releases or {}).keys() <= set(clusters):
        raise ConfigError(f"releases are for the lab's clusters: {', '.join(clusters)}")
    users = users or {}
    if not all(text.isalnum() and text.isascii() for user in users.items() for text in user):
        raise ConfigError("names and passwords of a lab's users are letters and digits")
    further = {name: dict(settings) for name, settings in (listeners or {}).items()}
    if not all(name.isascii() and name.isalpha() and name.islower() for name in further):
        raise ConfigError("names of a lab's listeners are lower-case letters")
    if secure:
        further[LISTENER] = folder.secure.listener()
    with_cassandra = store == "cassandra"
    count = brokers * len(clusters)
    ports = iter(free_ports(2 * (count + with_cassandra) + count * (bool(users) + len(further))))
    nodes = [
        Node(
            f"{alias}-{number}",
            "kafka",
            alias,
            number,
            next(ports),
            next(ports),
            next(ports) if users else 0,
            {name: next(ports) for name in further},
        )
        for alias in clusters
        for number in range(1, brokers + 1)
    ]
    if with_cassandra:
        nodes.append(Node("cassandra-1", "cassandra", CASSANDRA, 1, next(ports), next(ports)))
    ids = {alias: cluster_uuid() for alias in clusters}
    return Layout(
        brokers,
        store,
        clusters,
        ids,
        tuple(nodes),
        dict(broker_config),
        dict(users),
        further,
        dict(releases or {}),
        secure,
        dict(store_config or {}),
        list(broker_jvm),
    )


def refuse_other_shape(
    folder: LabDir, layout: Layout, brokers: int | None, store: StoreKind | None, *, secure: bool | None = None
) -> None:
    """Raise Refused if the existing lab has another shape than the requested one (None: any)."""
    differences = []
    if brokers is not None and brokers != layout.brokers:
        differences.append(f"{counted(layout.brokers, 'broker')} per cluster, not {brokers}")
    if store is not None and store != layout.store:
        differences.append(f"{layout.store} as its store, not {store}")
    if secure is not None and secure != layout.secure:
        differences.append("security, which was not requested" if layout.secure else "no security")
    if differences:
        raise Refused(
            f"the lab in {folder.path} has {' and '.join(differences)}",
            remedy=f"Run `drkit lab down --dir {folder.path}` first, or choose another --dir",
        )


def cluster_uuid() -> str:
    """A new id as Kafka writes them: 22 characters of URL-safe base64, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
