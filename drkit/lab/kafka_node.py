"""A Kafka broker of the lab: KRaft, broker and controller in one process, on loopback."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from drkit.files import write_atomically
from drkit.lab.layout import Layout, Node, cluster_uuid
from drkit.lab.process import Interrupts, mark
from drkit.lab.toolchain import Toolchain
from drkit.model.errors import DrkitError

MEMORY_MIB = 450  # resident, under a test's load
_FULL_REPLICATION = 3
_TOKEN_KEYS = "sasl.oauthbearer.jwks.endpoint.url"  # noqa: S105 - a setting's name

_OF_THE_LAB = frozenset({"security.protocol", "advertised.host"})
"""Settings of a further listener that are not Kafka's under `listener.name.NAME.`."""

_LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR">
  <Appenders>
    <RollingFile name="file" fileName="{log}" filePattern="{log}.%i">
      <PatternLayout pattern="[%d] %p %m (%c)%n"/>
      <Policies><SizeBasedTriggeringPolicy size="10MB"/></Policies>
      <DefaultRolloverStrategy max="2"/>
    </RollingFile>
  </Appenders>
  <Loggers><Root level="INFO"><AppenderRef ref="file"/></Root></Loggers>
</Configuration>
"""

_POLL_SECONDS = 0.1


_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "false",
}
"""Users have no rights by default. The plain listener stays, for the brokers and the lab itself: its anonymous user is
a super user."""


_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a node that starts fast and takes little memory."""


def properties(
    node: Node,
    peers: Sequence[Node],
    data: Path,
    extra: Mapping[str, str],
    users: Mapping[str, str] | None = None,
    listeners: Mapping[str, Mapping[str, str]] | None = None,
    *,
    secure: bool = False,
) -> dict[str, str]:
    """server.properties; `extra` overrides everything except for identity, addresses, users, listeners and rights."""
    replication = min(_FULL_REPLICATION, len(peers))
    in_sync = 2 if replication == _FULL_REPLICATION else 1
    voters = ",".join(f"{peer.node_id}@127.0.0.1:{peer.peer_port}" for peer in peers)
    return {
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(replication),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replication),
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": str(replication),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": str(replication),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "share.coordinator.state.topic.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        "broker.session.timeout.ms": "4000",  # a killed broker can't register again before
        "broker.heartbeat.interval.ms": "500",
        "broker.rack": f"rack-{node.node_id}",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),  # the default is 128 MiB of heap
        "log.cleaner.backoff.ms": "1000",  # by default compacted topics wait 15 s
        **extra,
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": voters,
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        **(_sasl(users) if users else {}),
        **(_AUTHORIZER if users or secure else {}),
        **_listening(node, listeners or {}),
    }


def _listening(node: Node, listeners: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The broker's listeners: plain, with SASL for the lab's users, and the further ones."""
    clients = {"PLAINTEXT": ("PLAINTEXT", node.port)}
    if node.sasl_port:
        clients["SASL"] = ("SASL_PLAINTEXT", node.sasl_port)
    settings: dict[str, str] = {}
    for name, own in listeners.items():
        clients[name.upper()] = (own["security.protocol"], node.listener_ports[name])
        settings |= {f"listener.name.{name}.{key}": value for key, value in own.items() if key not in _OF_THE_LAB}
    listening = [f"{name}://127.0.0.1:{port}" for name, (_, port) in clients.items()]
    hosts = {name.upper(): own.get("advertised.host", "127.0.0.1") for name, own in listeners.items()}
    advertised = [f"{name}://{hosts.get(name, '127.0.0.1')}:{port}" for name, (_, port) in clients.items()]
    protocols = [f"{name}:{protocol}" for name, (protocol, _) in clients.items()]
    return {
        "listeners": ",".join([*listening, f"CONTROLLER://127.0.0.1:{node.peer_port}"]),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join([*protocols, "CONTROLLER:PLAINTEXT"]),
        **settings,
    }


def _sasl(users: Mapping[str, str]) -> dict[str, str]:
    """SASL/PLAIN for these users on the second listener."""
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return {
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
        ),
    }


def prepare(node: Node, folder: Path, bootstrap: bytes, layout: Layout) -> None:
    """Write the broker's files; formats its storage if that wasn't done before.

    `bootstrap`: the content of the checkpoint that Kafka's own format command writes. It is the same for
    every broker of a release, so it is created once (see `formatted_bootstrap`) and not by a JVM each time.
    """
    data = folder / "data"
    (folder / "log").mkdir(parents=True, exist_ok=True)
    settings = properties(
        node,
        layout.peers(node.cluster),
        data,
        layout.broker_config,
        layout.users,
        layout.listeners,
        secure=layout.secure,
    )
    lines = [f"{key}={_escaped(value)}\n" for key, value in settings.items()]
    write_atomically(folder / "server.properties", "".join(lines))
    write_atomically(folder / "log4j2.xml", _LOG4J.format(log=escape(str(folder / "log" / "server.log"))))
    if not (data / "meta.properties").exists():
        write_atomically(data / "bootstrap.checkpoint", bootstrap)
        cluster_id = layout.cluster_ids[node.cluster]
        meta = {"version": "1", "cluster.id": cluster_id, "node.id": str(node.node_id), "directory.id": cluster_uuid()}
        write_atomically(data / "meta.properties", "".join(f"{key}={value}\n" for key, value in meta.items()))


def command(toolchain: Toolchain, node: Node, lab: Path, folder: Path, layout: Layout) -> list[str]:
    """The command line of the broker; it may fetch the keys with which its listeners check tokens."""
    keys = [own[_TOKEN_KEYS] for own in layout.listeners.values() if _TOKEN_KEYS in own]
    return [
        str(toolchain.java),
        *(layout.broker_jvm or _JVM),
        f"-XX:ErrorFile={folder / 'log' / 'crash.log'}",
        "-Djava.awt.headless=true",
        "-Dlog4j2.disable.jmx=true",
        f"-Dlog4j2.configurationFile={(folder / 'log4j2.xml').as_uri()}",
        *([f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(keys)}"] if keys else []),
        mark(lab, node.name),
        "-cp",
        toolchain.classpath(layout.jar_set(node)),
        "kafka.Kafka",
        str(folder / "server.properties"),
    ]


def lock_file(folder: Path) -> Path:
    """What a broker locks while it uses its data."""
    return folder / "data" / ".lock"


def _escaped(value: str) -> str:
    """A value for a Java properties file: Latin-1, with other characters as escapes."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    return "".join(char if char.isascii() else f"\\u{ord(char):04x}" for char in text)


def formatted_bootstrap(toolchain: Toolchain, interrupts: Interrupts, jar_set: str = "kafka") -> bytes:
    """The bootstrap checkpoint of the Kafka in a set of jars, created once per release and cached.

    It sets the release's feature levels and names neither cluster nor node. Running the command for every broker would
    cost a JVM start each, a good part of the lab's start time.

    Raises:
        DrkitError: the format command failed; its output is in the message.
    """
    release = hashlib.sha256("".join(jar.sha256 for jar in toolchain.sets[jar_set]).encode()).hexdigest()[:16]
    kept = toolchain.cache / "kafka-format" / release / "bootstrap.checkpoint"
    if not kept.is_file():
        write_atomically(kept, _format(toolchain, interrupts, jar_set))
    return kept.read_bytes()


def _format(toolchain: Toolchain, interrupts: Interrupts, jar_set: str) -> bytes:
    work = Path(tempfile.mkdtemp(prefix="drkit-format-"))
    try:
        node = Node("any", "kafka", "any", 1, 1, 2)
        file = work / "server.properties"
        settings = properties(node, [node], work / "data", {})
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        command = [str(toolchain.java), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m"]
        command += ["-cp", toolchain.classpath(jar_set), "kafka.tools.StorageTool", "format"]
        command += ["-t", cluster_uuid(), "-c", str(file)]
        with (work / "output").open("wb") as output:
            tool = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        try:
            while tool.poll() is None:
                interrupts.wait(_POLL_SECONDS)
        finally:
            if tool.poll() is None:
                tool.kill()
            tool.wait()
        written = work / "data" / "bootstrap.checkpoint"
        if tool.returncode != 0 or not written.is_file():
            raise DrkitError(
                "Kafka's format command failed",
                meaning=(work / "output").read_text(encoding="utf-8", errors="replace")[-2000:],
            )
        return written.read_bytes()
    finally:
        shutil.rmtree(work, ignore_errors=True)
