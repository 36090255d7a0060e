"""A Cassandra that asks for a password and for clients' certificates, over TLS: real, on a node of the tests' own."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from cassandra.cluster import Cluster, NoHostAvailable, Session

from drkit.lab import Lab
from drkit.model.errors import ConfigError, Unreachable
from drkit.model.topology import LinkId
from drkit.store import open_store
from tests.support.clusters.guard import Guard
from tests.support.clusters.tls import KEY_PASSWORD, Pem, make_certificates
from tests.support.collection.sampling import some_of

pytestmark = [pytest.mark.cassandra, some_of("stores over TLS", 4)]
LINK = LinkId("primary", "dr")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    """For node and clients; the keys of `open` and `unknown` are the clients', not locked."""
    pem = make_certificates(tmp_path_factory.mktemp("store-pem"))
    chain = pem.key("broker").read_text() + pem.certificate("broker").read_text()
    (pem.folder / "node.pem").write_text(chain)
    for name, locked in (("open", "client"), ("unknown", "stranger")):
        pem.certificate(name).write_bytes(pem.certificate(locked).read_bytes())
        opened = ["-passin", f"pass:{KEY_PASSWORD}", "-nocrypt", "-out", pem.key(name)]
        subprocess.run(["openssl", "pkcs8", "-topk8", "-in", pem.key(locked), *opened], check=True, capture_output=True)
    return pem


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard, certificates: Pem) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("cassandra-tls")
    lab_guard.watch(folder)
    pem_files = {"class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"}
    lab = Lab.up(
        folder,
        store="cassandra",
        clusters=(),
        timeout_seconds=300,
        store_config={
            "authenticator": "PasswordAuthenticator",
            "client_encryption_options": {
                "enabled": True,
                "optional": True,  # the lab itself asks without TLS whether the node answers
                "require_client_auth": True,
                "ssl_context_factory": pem_files,
                "keystore": str(certificates.folder / "node.pem"),
                "truststore": str(certificates.ca),
            },
        },
    )
    yield lab
    lab.down()


class Url:
    """A store on the node, with a keyspace of its own."""

    def __init__(self, lab: Lab, pem: Pem) -> None:
        self.base = lab.store_url(f"drkit_{uuid.uuid4().hex[:16]}")
        self.pem = pem

    def __call__(self, user: str = "cassandra:cassandra", host: str = "127.0.0.1", **tls: Path | str) -> str:
        url = self.base.replace("cassandra://127.0.0.1", f"cassandra://{user}@{host}")
        return url + "&timeout=5" + "".join(f"&{name}={quote(str(value))}" for name, value in tls.items())

    @property
    def mutual(self) -> dict[str, Path]:
        return {"ca": self.pem.ca, "certificate": self.pem.certificate("open"), "key": self.pem.key("open")}


@pytest.fixture
def url(node: Lab, certificates: Pem) -> Url:
    return Url(node, certificates)


def test_a_store_over_tls_with_a_client_certificate_and_a_password(url: Url):
    with closing(open_store(url(**url.mutual))) as store:
        store.put_notes(LINK, "kind", {"name": "kept"})
    with closing(open_store(url(**url.mutual), create=False)) as store:
        assert store.notes(LINK, "kind") == {"name": "kept"}


def test_a_wrong_password_over_tls(url: Url):
    with pytest.raises(ConfigError, match="refuses the user or password") as caught:
        open_store(url(user="cassandra:sesame", **url.mutual))
    assert "sesame" not in str(caught.value)


def test_no_certificate_where_the_node_asks_for_one(url: Url):
    with pytest.raises(ConfigError, match="refuses the TLS connection") as caught:
        open_store(url(ca=url.pem.ca))
    assert "certificate=" in (caught.value.remedy or "")


def test_a_connection_that_is_reset_before_the_nodes_alert_is_read(url: Url, monkeypatch: pytest.MonkeyPatch):
    """TLS 1.3: which of both the driver sees is decided by microseconds (seen once, under load)."""

    def reset(_: Cluster) -> Session:
        raise NoHostAvailable("no host", {"127.0.0.1": ConnectionResetError(104, "Connection reset by peer")})

    monkeypatch.setattr(Cluster, "connect", reset)
    with pytest.raises(ConfigError, match="refuses the TLS connection"):
        open_store(url(ca=url.pem.ca))
    with pytest.raises(Unreachable, match="Connection reset by peer"):
        open_store(url(**url.mutual))


def test_a_certificate_that_the_node_does_not_know(url: Url):
    with pytest.raises(ConfigError, match="refuses the TLS connection"):
        open_store(url(ca=url.pem.ca, certificate=url.pem.certificate("unknown"), key=url.pem.key("unknown")))


def test_an_authority_that_did_not_sign_the_nodes_certificate(url: Url):
    with pytest.raises(ConfigError, match="certificate can't be trusted") as caught:
        open_store(url(**{**url.mutual, "ca": url.pem.other_ca}))
    assert "ca=PATH" in (caught.value.remedy or "")


class Relay(socketserver.BaseRequestHandler):
    """Passes a connection on to the node, at the same port."""

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.server_address[1])) as node:
            back = threading.Thread(target=pump, args=(node, self.request))
            back.start()
            pump(self.request, node)
            back.join()


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def test_a_node_at_an_address_that_its_certificate_lacks(node: Lab, url: Url):
    port = int(node.store_url().partition("127.0.0.1:")[2].partition("/")[0])
    with socketserver.ThreadingTCPServer(("127.0.0.2", port), Relay) as relay:
        thread = threading.Thread(target=relay.serve_forever)
        thread.start()
        try:
            with pytest.raises(ConfigError, match="certificate can't be trusted") as caught:
                open_store(url(host="127.0.0.2", **url.mutual))
        finally:
            relay.shutdown()
            thread.join()
    assert "127.0.0.2" in str(caught.value)
    assert "the node's address" in (caught.value.remedy or "")


def test_a_store_whose_nodes_addresses_are_not_compared_with_their_certificates(url: Url):
    with closing(open_store(url(host="localhost", verify_host="false", **url.mutual))) as store:
        assert store.notes(LINK, "kind") == {}


def test_tls_to_a_node_that_speaks_none(cassandra_lab: Lab, certificates: Pem):
    plain = Url(cassandra_lab, certificates)
    with pytest.raises((ConfigError, Unreachable), match="cassandra 127") as caught:
        open_store(plain(**plain.mutual))
    assert caught.value.remedy
