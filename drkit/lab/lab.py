"""The lab: real Kafka clusters and Cassandra on this machine, as child processes on loopback."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs
import psutil

from drkit.files import write_atomically
from drkit.lab import process
from drkit.lab.cassandra_node import DATACENTER
from drkit.lab.layout import CASSANDRA, LabDir, Layout, Node, StoreKind, new_layout, refuse_other_shape, usable_folder
from drkit.lab.process import Interrupts, kill, stop
from drkit.lab.secure import APPLICATION, LISTENER, SecureDir, drkit_user
from drkit.lab.start import Starter, probe
from drkit.lab.toolchain import Toolchain, ensure
from drkit.model.errors import ConfigError, DrkitError, Refused

# --- the drkit.toml of a lab ---------------------------------------------------------------------------------------

KEYSPACE = "drkit"


@dataclass(frozen=True, slots=True)
class LabLink:
    """A link of the configuration. `policy`: `identity` or `prefix`; `topics`: regular expressions."""

    source: str
    target: str
    policy: str = "identity"
    topics: tuple[str, ...] = (".*",)


def render(layout: Layout, secure: SecureDir, links: Sequence[LabLink] | None = None) -> str:
    """The configuration for a lab's clusters, with the contract's objectives.

    Args:
        layout: the lab.
        secure: the certificates and passwords of a secured lab.
        links: default: one from the first cluster to each other.
    """
    first, *others = layout.clusters or ("",)
    links = [LabLink(first, target) for target in others] if links is None else links
    lines = ["# Written by `drkit lab up`; removed by `drkit lab down`.", ""]
    for alias in layout.clusters:
        lines += _secured(layout, alias, secure) if layout.secure else _open(layout, alias)
    lines += ["[store]", f"url = {_text(store_url(layout))}", ""]
    for link in links:
        lines += [
            "[[links]]",
            f"source = {_text(link.source)}",
            f"target = {_text(link.target)}",
            f"topics = [{', '.join(map(_text, link.topics))}]",
            *([] if link.policy == "identity" else [f"policy = {_text(link.policy)}"]),
            "",
        ]
    lines += ["[objectives]", "rpo_records = 0", "rpo_seconds = 5", "rto_seconds = 60", ""]
    return "\n".join(lines)


def _open(layout: Layout, alias: str) -> list[str]:
    lines = [f"[clusters.{alias}]", f"bootstrap_servers = {_text(bootstrap(layout, alias))}", "drill = true"]
    return [*lines, f"[clusters.{alias}.client]", '"security.protocol" = "PLAINTEXT"', ""]


def _secured(layout: Layout, alias: str, secure: SecureDir) -> list[str]:
    """A cluster with drkit's own user; the applications' user proves a fence."""
    servers = f"bootstrap_servers = {_text(bootstrap(layout, alias, listener=LISTENER))}"
    lines = []
    for table, user in ((f"clusters.{alias}", drkit_user(alias)), (f"clusters.{alias}.fence", APPLICATION)):
        lines += [f"[{table}]", servers, *(["drill = true"] if user != APPLICATION else []), f"[{table}.client]"]
        lines += [f"{_text(name)} = {_value(value)}" for name, value in secure.client(user).items()]
        lines.append("")
    return lines


def _value(value: str | dict[str, str]) -> str:
    if isinstance(value, str):
        return _text(value)
    return "{ " + ", ".join(f"{name} = {_text(text)}" for name, text in value.items()) + " }"


def bootstrap(layout: Layout, alias: str, *, sasl: bool = False, listener: str | None = None) -> str:
    """`host:port,…` of a cluster's brokers; `sasl`: of the users' listener; `listener`: of this listener."""
    nodes = layout.peers(alias)
    if listener is not None:
        ports = [node.listener_ports[listener] for node in nodes]
    else:
        ports = [node.sasl_port if sasl else node.port for node in nodes]
    return ",".join(f"127.0.0.1:{port}" for port in ports)


def store_url(layout: Layout, keyspace: str = KEYSPACE) -> str:
    """The store's URL; a SQLite path is relative to the configuration file."""
    nodes = layout.peers(CASSANDRA)
    if nodes:
        return f"cassandra://{nodes[0].address}/{keyspace}?dc={DATACENTER}&replication_factor=1"
    return "sqlite:///drkit.db"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)  # a JSON string is a TOML basic string


# --- the lab -------------------------------------------------------------------------------------------------------

NodeState = Literal["up", "down", "paused", "starting"]
START_SECONDS = 120.0
_GRACE_SECONDS = 15.0
_GRACE_BEFORE_REMOVAL_SECONDS = 5.0  # brokers that stop together wait for a quorum that is gone
_PAUSE_SECONDS = 5.0
LOCK_FILE = ".lab.lock"
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The current state of a node. `starting`: its process runs and doesn't answer (yet)."""

    name: str
    cluster: str
    state: NodeState
    pid: int | None
    port: int
    bootstrap: str
    reason: str | None = None


def default_dir() -> Path:
    """The default folder of a lab."""
    return Path(platformdirs.user_state_dir("drkit")) / "lab"


def silent(line: str) -> None:
    """Say nothing."""


class Lab:
    """A lab in a folder. `up` creates one, `open` finds one.

    Nodes outlive the process that started them. `started`: the nodes that this call of `up` started.
    """

    def __init__(self, folder: LabDir, layout: Layout) -> None:
        self._folder = folder
        self._layout = layout
        self.started: list[str] = []

    # -- making and finding ------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        dir: Path | None = None,  # noqa: A002 - the option's name
        brokers: int | None = None,
        store: StoreKind | None = None,
        *,
        clusters: Sequence[str] = ("primary", "dr"),
        links: Sequence[LabLink] | None = None,
        broker_config: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        listeners: Mapping[str, Mapping[str, str]] | None = None,
        releases: Mapping[str, str] | None = None,
        secure: bool | None = None,
        store_config: Mapping[str, object] | None = None,
        broker_jvm: Sequence[str] = (),
        timeout_seconds: float = START_SECONDS,
        say: Callable[[str], None] = silent,
    ) -> Lab:
        """Create the lab in `dir`, or start the nodes of an existing one that don't run.

        Args:
            dir: the lab's folder (default: under the user's state directory).
            brokers: brokers per cluster; default: 1, or those of the existing lab.
            store: cassandra (default) or sqlite; as above. With `clusters=()` only Cassandra starts.
            clusters: aliases.
            links: those of the configuration, if it is written now; default: one from the first cluster to each other.
            broker_config: broker settings that override the lab's own.
            users: passwords by name: the brokers get a second listener with SASL/PLAIN for them (see `bootstrap`) and
                an authorizer; these users have the rights that ACLs grant them.
            listeners: further listeners of every broker by name (lower-case letters), each with its settings without
                Kafka's `listener.name.NAME.`; besides, `security.protocol`, and `advertised.host` for clients (default:
                127.0.0.1, where it listens).
            releases: clusters that run another Kafka release than the lab's own, with its set of jars.
            secure: clients are users with passwords, over TLS, with an authorizer (`drkit.lab.secure`); the caller must
                create the users and their rights once the brokers answer. Default: no, or as in the existing lab.
            store_config: settings of Cassandra that override the lab's own.
            broker_jvm: the brokers' heap, collector and compilers; default: small ones that start fast.
            timeout_seconds: how long the nodes may take to answer.
            say: called with a readable line about each step.

        Raises:
            Refused: the existing lab has another shape, a port is taken, too little memory, an unusable folder.
            DrkitError: a node failed to start (the message has its last log lines), or a jar couldn't be fetched. What
                this call started is stopped again.
        """
        folder = LabDir(usable_folder(dir or default_dir()))
        with Interrupts() as interrupts, folder_lock(folder.path, interrupts, say):
            layout = folder.read_layout()
            made = layout is None
            if layout is None:
                layout = new_layout(
                    folder,
                    brokers or 1,
                    store or "cassandra",
                    tuple(clusters),
                    broker_config or {},
                    users or {},
                    listeners or {},
                    releases or {},
                    secure=bool(secure),
                    store_config=store_config,
                    broker_jvm=broker_jvm,
                )
            else:
                refuse_other_shape(folder, layout, brokers, store, secure=secure)
            try:
                lab = cls(folder, layout)
                lab.started = lab._start_dead(made, interrupts, timeout_seconds, say)
                if not folder.config.exists():
                    write_atomically(folder.config, render(layout, folder.secure, links))
                interrupts.check()
            except BaseException:
                if made:
                    interrupts.clean_up()
                    folder.remove_own()
                raise
            return lab

    @classmethod
    def open(cls, dir: Path | None = None) -> Lab:  # noqa: A002 - the option's name
        """The lab in `dir`, running or not.

        Raises:
            Refused: there is none.
        """
        folder = LabDir((dir or default_dir()).expanduser().resolve())
        layout = folder.read_layout()
        if layout is None:
            raise Refused(f"there is no lab in {folder.path}", remedy=f"Create one: drkit lab up --dir {folder.path}")
        return cls(folder, layout)

    # -- what it is --------------------------------------------------------------------------

    @property
    def dir(self) -> Path:
        """The lab's folder."""
        return self._folder.path

    @property
    def config_path(self) -> Path:
        """The drkit.toml that `up` wrote."""
        return self._folder.config

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes: names, clusters, ports."""
        return self._layout.nodes

    @property
    def clusters(self) -> tuple[str, ...]:
        """Aliases of the Kafka clusters."""
        return self._layout.clusters

    @property
    def users(self) -> dict[str, str]:
        """Passwords by name, of a lab with an authorizer; empty otherwise."""
        return dict(self._layout.users)

    @property
    def secure(self) -> bool:
        """Whether its clients are users with passwords, over TLS."""
        return self._layout.secure

    @property
    def secure_dir(self) -> SecureDir:
        """The certificates and passwords of a secured lab."""
        return self._folder.secure

    def bootstrap(self, alias: str, *, sasl: bool = False, listener: str | None = None) -> str:
        """`host:port,…` of a cluster's brokers; `sasl`: of the users' listener; `listener`: of this listener."""
        if alias not in self._layout.clusters:
            raise ConfigError(f"this lab has no cluster {alias!r}", remedy=f"It has {', '.join(self._layout.clusters)}")
        return bootstrap(self._layout, alias, sasl=sasl, listener=listener)

    def cluster_id(self, alias: str) -> str:
        """The cluster's id."""
        return self._layout.cluster_ids[alias]

    def store_url(self, keyspace: str = "drkit") -> str:
        """The store's URL, for Cassandra with this keyspace; SQLite's path is absolute."""
        url = store_url(self._layout, keyspace)
        return url if url.startswith(CASSANDRA) else f"sqlite:///{self.dir / 'drkit.db'}"

    def status(self) -> list[NodeStatus]:
        """The current state of every node; each is probed."""
        running = self._running()
        with ThreadPoolExecutor(max_workers=max(1, len(self.nodes))) as pool:
            return list(pool.map(lambda node: self._status(node, running.get(node.name)), self.nodes))

    def running(self, *names: str) -> dict[str, psutil.Process]:
        """The live processes of these nodes (an alias: all its nodes), by node."""
        chosen = self._layout.select(names)
        running = self._running()
        return {node.name: running[node.name] for node in chosen if node.name in running}

    # -- doing things to it ------------------------------------------------------------------

    def kill(self, *names: str) -> list[str]:
        """SIGKILL nodes (an alias: all its nodes); returns those that were running."""
        chosen = self.running(*names)
        kill(chosen.values())
        return list(chosen)

    def pause(self, *names: str) -> list[str]:
        """SIGSTOP nodes; returns when they are stopped. Refuses nodes that aren't running."""
        chosen = self._all_running(names, "pause")
        for each in chosen.values():
            process.send(each, signal.SIGSTOP)
        with Interrupts() as interrupts:
            for _ in range(int(_PAUSE_SECONDS / 0.01)):
                if all(process.is_paused(each) for each in chosen.values()):
                    return list(chosen)
                interrupts.wait(0.01)
        raise DrkitError(f"{', '.join(chosen)} did not stop after SIGSTOP", remedy="Check `drkit lab status`")

    def resume(self, *names: str) -> list[str]:
        """SIGCONT nodes; no effect on one that isn't paused."""
        chosen = self._all_running(names, "resume")
        for each in chosen.values():
            process.send(each, signal.SIGCONT)
        return list(chosen)

    def restart(
        self, *names: str, timeout_seconds: float = START_SECONDS, say: Callable[[str], None] = silent
    ) -> list[str]:
        """Stop running nodes (gracefully, also paused ones) and start all on the same ports and data.

        Returns when each answers.
        """
        nodes = self._layout.select(names)
        with self._held(say) as interrupts:
            toolchain = self._toolchain(nodes, interrupts)
            stop(self.running(*names).values(), _GRACE_SECONDS)
            expected = {node: frozenset({node.node_id}) for node in nodes}
            Starter(self._folder, self._layout, toolchain, interrupts, say).start(nodes, expected, timeout_seconds)
        return [node.name for node in nodes]

    def down(self, *, keep_data: bool = False, say: Callable[[str], None] = silent) -> list[str]:
        """Stop every node and remove the lab's files (`keep_data`: keep them for the next `up`).

        Returns the names of the nodes that were running.
        """
        with self._held(say):
            return take_down(self._folder, keep_data=keep_data)

    # -- inside ------------------------------------------------------------------------------

    def _start_dead(
        self, made: bool, interrupts: Interrupts, timeout_seconds: float, say: Callable[[str], None]
    ) -> list[str]:
        """Start the nodes that don't run, and wait for all except for paused ones; returns the started ones."""
        running = self._running()
        paused = {name for name, each in running.items() if process.is_paused(each)}
        awake = [node for node in self.nodes if node.name not in paused]
        dead = [node for node in self.nodes if node.name not in running]
        toolchain = self._toolchain(dead, interrupts)
        if made:
            if self.secure:
                self.secure_dir.make([APPLICATION, *map(drkit_user, self.clusters)])
            self._folder.write_layout(self._layout)
        if dead:
            say(f"starting {', '.join(node.name for node in dead)} in {self.dir}")
        expected = {node: frozenset(peer.node_id for peer in awake if peer.cluster == node.cluster) for node in awake}
        Starter(self._folder, self._layout, toolchain, interrupts, say if dead else silent).start(
            dead, expected, timeout_seconds
        )
        return [node.name for node in dead]

    def _toolchain(self, nodes: Sequence[Node], interrupts: Interrupts) -> Toolchain:
        """The toolchain of these nodes."""
        return ensure(*dict.fromkeys(self._layout.jar_set(node) for node in nodes), interrupts=interrupts)

    @contextmanager
    def _held(self, say: Callable[[str], None]) -> Iterator[Interrupts]:
        with Interrupts() as interrupts, folder_lock(self.dir, interrupts, say):
            yield interrupts

    def _running(self) -> dict[str, psutil.Process]:
        """The live processes of this lab: by the record of their start, else by their mark."""
        found: dict[str, psutil.Process] = {}
        for node in self.nodes:
            noted = process.noted(self._folder.process_file(node.name))
            proved = process.proved(noted, process.mark(self.dir, node.name))
            if proved is not None:
                found[node.name] = proved
        if len(found) < len(self.nodes):
            found = {**process.marked(self.dir), **found}
        return {node.name: found[node.name] for node in self.nodes if node.name in found}

    def _all_running(self, names: tuple[str, ...], verb: str) -> dict[str, psutil.Process]:
        chosen = self._layout.select(names)
        running = self.running(*names)
        dead = [node.name for node in chosen if node.name not in running]
        if dead:
            raise Refused(
                f"can't {verb} {', '.join(dead)}: not running", remedy=f"Start it: drkit lab restart {dead[0]}"
            )
        return running

    def _status(self, node: Node, running: psutil.Process | None) -> NodeStatus:
        state: NodeState
        reason = None
        if running is None:
            state = "down"
            noted = process.noted(self._folder.process_file(node.name))
            if noted is None:
                reason = "never started"
            elif process.lives(noted.pid):
                reason = f"its process is gone (pid {noted.pid} is another program now)"
            else:
                reason = f"its process (pid {noted.pid}) is gone"
        elif process.is_paused(running):
            state = "paused"
        elif probe(node)(node) is None:
            state, reason = "starting", "its process runs and doesn't answer"
        else:
            state = "up"
        pid = None if running is None else running.pid
        port = node.listener_ports.get(LISTENER) if self.secure else None
        address = node.address if port is None else f"127.0.0.1:{port}"
        return NodeStatus(node.name, node.cluster, state, pid, node.port, address, reason)


def take_down_folder(
    dir: Path | None,  # noqa: A002 - the option's name
    *,
    keep_data: bool = False,
    say: Callable[[str], None] = silent,
) -> tuple[Path, list[str]]:
    """Like `Lab.down`, for a folder whose lab.json may be lost or damaged: processes are found by their mark.

    Returns the folder and the names of the nodes that were running.

    Raises:
        Refused: there is no lab in the folder, and no process of one either.
    """
    folder = LabDir((dir or default_dir()).expanduser().resolve())
    if not folder.layout_file.exists() and not process.marked(folder.path):
        raise Refused(f"there is no lab in {folder.path}", remedy="There is nothing to do")
    with Interrupts() as interrupts, folder_lock(folder.path, interrupts, say):
        return folder.path, take_down(folder, keep_data=keep_data)


def take_down(folder: LabDir, *, keep_data: bool) -> list[str]:
    """Stop every process with the folder's mark, even if its lab.json is lost or damaged."""
    running = process.marked(folder.path)
    stop(running.values(), _GRACE_SECONDS if keep_data else _GRACE_BEFORE_REMOVAL_SECONDS)
    if not keep_data:
        folder.remove_own()
    return sorted(running)


@contextmanager
def folder_lock(folder: Path, interrupts: Interrupts, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the fcntl lock of the lab's folder, which dies with its holder. Waits for another holder, and says so once.

    `down` removes the file with the folder. A lock on a removed file is worthless: it is taken again on the current
    file. The last holder removes the file if the folder is otherwise empty.
    """
    path = folder / LOCK_FILE
    said = False
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(file.fileno(), path):
                break
        except BlockingIOError:
            if not said:
                say(f"another drkit command is changing the lab in {folder}; waiting for it")
                said = True
            try:
                interrupts.wait(_POLL_SECONDS)
            except BaseException:
                file.close()
                raise
        file.close()
    try:
        yield
    finally:
        if not (folder / "lab.json").exists():
            path.unlink(missing_ok=True)
            _remove_if_empty(folder)
        file.close()


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
