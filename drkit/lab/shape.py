"""The layout of a new lab, and the folders that can hold it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from drkit.lab.kafka_node import cluster_uuid
from drkit.lab.layout import CASSANDRA, LabDir, Layout, Node, StoreKind
from drkit.lab.ports import free_ports
from drkit.lab.secure import LISTENER
from drkit.model.errors import ConfigError, Refused

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
    )


def refuse_other_shape(
    folder: LabDir, layout: Layout, brokers: int | None, store: StoreKind | None, *, secure: bool | None = None
) -> None:
    """Raise Refused if the existing lab has another shape than the requested one (None: any)."""
    differences = []
    if brokers is not None and brokers != layout.brokers:
        differences.append(f"{layout.brokers} broker(s) per cluster, not {brokers}")
    if store is not None and store != layout.store:
        differences.append(f"{layout.store} as its store, not {store}")
    if secure is not None and secure != layout.secure:
        differences.append("security, which was not requested" if layout.secure else "no security")
    if differences:
        raise Refused(
            f"the lab in {folder.path} has {' and '.join(differences)}",
            remedy=f"Run `drkit lab down --dir {folder.path}` first, or choose another --dir",
        )
