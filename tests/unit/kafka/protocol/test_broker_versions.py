"""A broker that is too old says so by the versions that it offers: it is refused by name, with what it lacks."""

from __future__ import annotations

import asyncio
import socketserver
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.config import ClusterConfig, load_config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.data_client import DataClient
from drkit.kafka.protocol.broker_versions import NEEDED, lacking
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.errors import BrokerTooOld
from drkit.store import open_store

_METADATA, _API_VERSIONS = 3, 18
_UNSUPPORTED_VERSION = 35
KAFKA_2_3 = {0: (0, 7), 1: (0, 11), _METADATA: (0, 8), _API_VERSIONS: (0, 2), 23: (0, 3)}


class OldBroker(socketserver.BaseRequestHandler):
    """Answers ApiVersions as Kafka 2.3 would, and Metadata with itself alone."""

    def handle(self) -> None:
        while (size := self.request.recv(4, 0x100)) and len(size) == 4:  # MSG_WAITALL
            asked = self.request.recv(struct.unpack(">i", size)[0], 0x100)
            api_key, version, correlation_id = struct.unpack_from(">hhi", asked)
            body = self.versions(version) if api_key == _API_VERSIONS else self.metadata(version)
            self.request.sendall(struct.pack(">ii", 4 + len(body), correlation_id) + body)

    def versions(self, version: int) -> bytes:
        rows = b"".join(struct.pack(">hhh", key, *offered) for key, offered in KAFKA_2_3.items())
        known = version <= KAFKA_2_3[_API_VERSIONS][1]
        throttle = struct.pack(">i", 0) if known and version else b""
        return struct.pack(">hi", 0 if known else _UNSUPPORTED_VERSION, len(KAFKA_2_3)) + rows + throttle

    def metadata(self, version: int) -> bytes:
        """No topics; versions 3 to 8 begin alike."""
        port = self.server.server_address[1]
        broker = struct.pack(">ih9sih", 1, 9, b"127.0.0.1", port, -1)
        rights = struct.pack(">i", 0) if version == 8 else b""
        return struct.pack(">ii", 0, 1) + broker + struct.pack(">h1sii", 1, b"c", 1, 0) + rights


@pytest.fixture
def old_broker() -> Iterator[str]:
    """Its address."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), OldBroker) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


def assert_says_all(error: BrokerTooOld, broker: str) -> None:
    assert f"broker {broker} lacks Produce version 8 (it offers 0 to 7; since Kafka 2.4)" in error.what
    assert "Metadata version 10 (it offers 0 to 8; since Kafka 2.8)" in error.what
    assert "DescribeProducers version 0 (it doesn't offer it; since Kafka 2.8)" in error.what
    assert "OffsetForLeaderEpoch" not in error.what
    assert "Kafka 2.8 or later" in error.remedy


def test_what_is_needed_is_told_by_request_and_version() -> None:
    newest = {need.api_key: (need.version, need.version + 3) for need in NEEDED}
    assert lacking(newest) == []
    assert lacking(newest | {1: (0, 11)}) == ["Fetch version 12 (it offers 0 to 11; since Kafka 2.7)"]
    assert lacking(newest | {1: (13, 20)}) == ["Fetch version 12 (it offers 13 to 20; since Kafka 2.7)"]


def test_whoever_administers_an_old_broker_is_told(old_broker: str) -> None:
    config = ClusterConfig(bootstrap_servers=old_broker)
    with ClusterAdmin("primary", config) as admin, pytest.raises(BrokerTooOld, match="cluster primary") as raised:
        admin.brokers()
    assert_says_all(raised.value, old_broker)


def test_no_data_goes_over_a_connection_to_an_old_broker(old_broker: str) -> None:
    async def play() -> None:
        stream = DataClient("primary", ClusterConfig(bootstrap_servers=old_broker), timeout_seconds=10)
        try:
            await stream.connect()
            await stream.connection(1, "fetch")
        finally:
            await stream.close()

    with pytest.raises(BrokerTooOld, match="cluster primary") as raised:
        asyncio.run(play())
    assert_says_all(raised.value, old_broker)


def test_a_mirror_does_not_start_on_old_brokers(old_broker: str, tmp_path: Path) -> None:
    path = tmp_path / "drkit.toml"
    path.write_text(
        f'[clusters.a]\nbootstrap_servers = "{old_broker}"\n[clusters.b]\nbootstrap_servers = "127.0.0.1:1"\n'
        f'[store]\nurl = "sqlite:///{tmp_path}/drkit.db"\n[[links]]\nsource = "a"\ntarget = "b"\ntopics = [".*"]\n'
    )
    config = load_config(path)
    store = open_store(config.store.plain_url)
    try:
        with pytest.raises(BrokerTooOld) as raised:
            MirrorRuntime(config, config.links[0].link(), store).run()
    finally:
        store.close()
    assert_says_all(raised.value, old_broker)
