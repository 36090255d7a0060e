"""A secured lab's files: certificates that fit, passwords for their owner alone, the configuration."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from drkit.config import load_config
from drkit.lab import kafka_node
from drkit.lab.lab import render
from drkit.lab.layout import LabDir, Layout, new_layout, refuse_other_shape
from drkit.lab.secure import APPLICATION, LISTENER, drkit_user
from drkit.model.errors import Refused


@pytest.fixture
def folder(tmp_path: Path) -> LabDir:
    folder = LabDir(tmp_path)
    folder.secure.make([APPLICATION, drkit_user("primary"), drkit_user("dr")])
    return folder


@pytest.fixture
def layout(folder: LabDir) -> Layout:
    return new_layout(folder, 2, "sqlite", ("primary", "dr"), {}, secure=True)


def test_only_their_owner_reads_what_is_secret(folder: LabDir):
    assert stat.S_IMODE(folder.secure.path.stat().st_mode) == 0o700
    secret = [folder.secure.keystore, *folder.secure.path.glob("*.password")]
    assert len(secret) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    assert len({folder.secure.password(user) for user in ("app", "drkit-primary", "drkit-dr")}) == 3


def test_the_brokers_certificate_is_of_the_authority_and_of_loopback(folder: LabDir):
    text = folder.secure.keystore.read_bytes()
    certificate = x509.load_pem_x509_certificate(text[text.index(b"-----BEGIN CERTIFICATE") :])
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(folder.secure.authority.read_bytes()))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder.secure.keystore)
    client = ssl.create_default_context(cafile=folder.secure.authority)
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python does from 3.13
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ours.getpeercert()


def test_drkit_is_another_user_on_each_cluster_and_a_fence_is_shown_to_the_applications(folder: LabDir, layout: Layout):
    folder.config.write_text(render(layout, folder.secure))
    config = load_config(folder.config)
    for alias in ("primary", "dr"):
        cluster = config.clusters[alias]
        assert cluster.properties()["sasl.username"] == f"drkit-{alias}"
        assert cluster.properties()["sasl.password"] == folder.secure.password(f"drkit-{alias}")
        assert cluster.writer().properties()["sasl.username"] == APPLICATION
        ports = ",".join(f"127.0.0.1:{node.listener_ports[LISTENER]}" for node in layout.peers(alias))
        assert cluster.bootstrap_servers == ports
    assert folder.secure.password("drkit-dr") not in folder.config.read_text()


def test_the_brokers_ask_for_passwords_over_tls_and_have_an_authorizer(folder: LabDir, layout: Layout):
    node = layout.nodes[0]
    settings = kafka_node.properties(
        node, layout.peers("primary"), Path("/data"), {}, {}, layout.listeners, secure=layout.secure
    )
    assert "SCRAM:SASL_SSL" in settings["listener.security.protocol.map"]
    assert settings["listener.name.scram.ssl.keystore.location"] == str(folder.secure.keystore)
    assert settings["allow.everyone.if.no.acl.found"] == "false"
    assert settings["super.users"] == "User:ANONYMOUS"


def test_an_open_lab_and_a_secured_one_are_not_taken_for_each_other(folder: LabDir, layout: Layout):
    folder.write_layout(layout)
    assert folder.read_layout() == layout
    with pytest.raises(Refused, match="has security, which was not requested"):
        refuse_other_shape(folder, layout, None, None, secure=False)
    refuse_other_shape(folder, layout, None, None, secure=None)
    plain = new_layout(folder, 1, "sqlite", ("primary",), {})
    with pytest.raises(Refused, match="has no security"):
        refuse_other_shape(folder, plain, None, None, secure=True)


def test_taking_the_lab_down_removes_its_secrets(folder: LabDir, layout: Layout):
    folder.write_layout(layout)
    folder.remove_own()
    assert not folder.secure.path.exists()
