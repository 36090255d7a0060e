"""The lab's Cassandra node: one process on loopback that keeps acknowledged writes across a SIGKILL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from drkit.files import write_atomically
from drkit.lab.layout import Node
from drkit.lab.process import mark
from drkit.lab.toolchain import Toolchain

MEMORY_MIB = 900  # resident
DATACENTER = "datacenter1"

_EXPORTS = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.util",
    "java.base/java.lang.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
)
_OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.net.www.protocol.file",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)
"""The packages that Cassandra's own jvm17-server.options opens."""

_LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.rolling.RollingFileAppender">
    <file>{log}</file>
    <rollingPolicy class="ch.qos.logback.core.rolling.FixedWindowRollingPolicy">
      <fileNamePattern>{log}.%i</fileNamePattern><minIndex>1</minIndex><maxIndex>2</maxIndex>
    </rollingPolicy>
    <triggeringPolicy class="ch.qos.logback.core.rolling.SizeBasedTriggeringPolicy">
      <maxFileSize>10MB</maxFileSize>
    </triggeringPolicy>
    <encoder><pattern>[%date] %level %msg \\(%logger\\)%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


_OF_A_LAB: dict[str, object] = {
    "cluster_name": "drkit lab",
    # A lone node: with periodic, SIGKILL loses acknowledged rows, which another replica would have kept.
    "commitlog_sync": "batch",
    "commitlog_segment_size": "16MiB",
    "commitlog_disk_access_mode": "legacy",
    "disk_access_mode": "standard",
    "file_cache_size": "32MiB",
    "networking_cache_size": "16MiB",
    "memtable_heap_space": "96MiB",
    "memtable_offheap_space": "96MiB",
    "concurrent_reads": 8,
    "concurrent_writes": 8,
    "concurrent_compactors": 1,
    "auto_snapshot": False,
}


def settings(node: Node, data: Path, extra: Mapping[str, object] | None = None) -> dict[str, object]:
    """cassandra.yaml; `extra` overrides everything except for names, addresses and paths.

    The commit log is synced before a write is acknowledged, so acknowledged writes survive SIGKILL.
    """
    return {
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        **_OF_A_LAB,
        **(extra or {}),
        "num_tokens": 1,
        "auto_bootstrap": False,
        "endpoint_snitch": "SimpleSnitch",
        "listen_address": "127.0.0.1",
        "rpc_address": "127.0.0.1",
        "storage_port": node.peer_port,
        "native_transport_port": node.port,
        "start_native_transport": True,
        "seed_provider": [
            {
                "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                "parameters": [{"seeds": f"127.0.0.1:{node.peer_port}"}],
            }
        ],
        "data_file_directories": [str(data / "data")],
        "commitlog_directory": str(data / "commitlog"),
        "hints_directory": str(data / "hints"),
        "saved_caches_directory": str(data / "saved_caches"),
        "cdc_raw_directory": str(data / "cdc_raw"),
    }


def prepare(node: Node, folder: Path, extra: Mapping[str, object] | None = None) -> None:
    """Write the node's files. JSON is YAML too, so the settings need no YAML writer."""
    (folder / "log").mkdir(parents=True, exist_ok=True)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "cassandra.yaml", json.dumps(settings(node, folder / "data", extra), indent=2) + "\n")
    write_atomically(folder / "logback.xml", _LOGBACK.format(log=escape(str(folder / "log" / "server.log"))))


def command(toolchain: Toolchain, node: Node, lab: Path, folder: Path) -> list[str]:
    """The command line of the node."""
    jamm = next(path for path in toolchain.jars("cassandra") if path.name.startswith("jamm-"))
    modules: list[str] = []
    for name in _EXPORTS:
        modules += ["--add-exports", f"{name}=ALL-UNNAMED"]
    for name in _OPENS:
        modules += ["--add-opens", f"{name}=ALL-UNNAMED"]
    return [
        str(toolchain.java),
        "-Xms128m",
        "-Xmx512m",
        "-XX:MaxDirectMemorySize=256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-XX:ErrorFile={folder / 'log' / 'crash.log'}",
        *modules,
        f"-javaagent:{jamm}",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dcassandra.config={(folder / 'cassandra.yaml').as_uri()}",
        f"-Dlogback.configurationFile={(folder / 'logback.xml').as_uri()}",
        f"-Dcassandra.storagedir={folder / 'data'}",
        "-Dcassandra-foreground=yes",
        "-Dcassandra.ring_delay_ms=0",
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        "-Dcassandra.superuser_setup_delay_ms=0",
        "-Dcassandra.shutdown_announce_in_ms=0",  # its ring has no other node
        mark(lab, node.name),
        "-cp",
        toolchain.classpath("cassandra"),
        "org.apache.cassandra.service.CassandraDaemon",
    ]
