"""Stores that can't be used, and hosts that aren't clusters: told by their name; nothing is repaired in silence."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import sqlite3
import ssl
import threading

import pytest
import trustme

from drkit.store import open_store
from tests.support.commands.bad_input import CONFIG, Bad, lay, refused, rows, settle
from tests.support.commands.in_process import in_process

STORE = 'url = "sqlite:///drkit.db"'


def with_store(folder):
    open_store(f"sqlite:///{folder}/drkit.db").close()


def at(what, url, *names, code=2, **more):
    """A store's URL that can't be one."""
    assert STORE in CONFIG
    config = CONFIG.replace(STORE, f"url = {json.dumps(url)}")
    return Bad(what, "status", ("drkit.toml", "store.url", *names), code=code, config=config, **more)


def damaged(what, damage, *names, code=1, command="status", **more):
    """A store that was one."""

    def prepare(folder):
        with_store(folder)
        damage(folder / "drkit.db")

    return Bad(what, command, names, code=code, prepare=prepare, **more)


def by_sql(*statements):
    def damage(file):
        with contextlib.closing(sqlite3.connect(file)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    return damage


def cut(file):
    file.write_bytes(file.read_bytes()[:-5000])


def scribbled(file):
    content = bytearray(file.read_bytes())
    content[4096:12288] = b"\xa5" * 8192
    file.write_bytes(content)


ROWS = [
    at("a store that is no URL", "drkit.db", "sqlite:///"),
    at("an empty store", "", "sqlite:///"),
    at("a store of another kind", "postgres://h/x", "postgres"),
    at("a store without a path", "sqlite://", "sqlite:///"),
    at("a store with two slashes", "sqlite://drkit.db", "three or four"),
    at("a store with an unknown parameter", "sqlite:////tmp/x.db?mode=ro", "mode", "timeout"),
    at("a store that waits no time", "sqlite:////tmp/x.db?timeout=0", "timeout"),
    at("a store that waits for ever", "sqlite:////tmp/x.db?timeout=inf", "timeout"),
    at("a store that waits no number", "sqlite:////tmp/x.db?timeout=nan", "timeout"),
    at("a store in no folder", "sqlite:///no/where/drkit.db", "no/where"),
    at("a store behind a file", "sqlite:///drkit.toml/drkit.db", "drkit.toml"),
    at("a store with a NUL", "sqlite:///a\0b.db"),
    at("a store whose link leads to itself", "sqlite:///loop/x.db", prepare=lambda d: (d / "loop").symlink_to("loop")),
    at("Cassandra without a keyspace", "cassandra://h:9042?dc=d", "keyspace"),
    at("Cassandra without a data centre", "cassandra://h/drkit", "dc=NAME"),
    at("Cassandra of half a user", "cassandra://sesame@h/drkit?dc=d", "user:password"),
    at("Cassandra with a password that isn't encoded", "cassandra://u:ses/ame@h/drkit?dc=d", "%2F"),
    at("Cassandra at port 0", "cassandra://h:0/drkit?dc=d", "65535"),
    at("Cassandra at port 70000", "cassandra://h:70000/drkit?dc=d", "65535"),
    at("Cassandra with an unknown parameter", "cassandra://h/drkit?dc=d&rf=3", "rf", "replication_factor"),
    at("Cassandra of no replicas", "cassandra://h/drkit?dc=d&replication_factor=0", "replication_factor"),
    at("Cassandra that is read too weakly", "cassandra://h/drkit?dc=d&consistency=ONE", "ONE", "LOCAL_QUORUM"),
    at("Cassandra that waits for ever", "cassandra://h/drkit?dc=d&timeout=inf", "timeout"),
    Bad("no store", "status", ("drkit.db",), code=3, remedy="drkit mirror"),
    Bad("no store to back up", "store backup --out b.gz", ("drkit.db",), code=3),
    Bad("no store to fail over with", "failover --to dr --dry-run", ("drkit.db",), code=3, remedy="store recover"),
    Bad("an empty file as a store", "status", ("drkit.db", "empty"), code=3, files={"drkit.db": ""}),
    Bad("a folder as a store", "status", ("drkit.db",), code=1, prepare=lambda d: (d / "drkit.db").mkdir()),
    Bad(
        "a link to itself as a store",
        "status",
        ("drkit.db",),
        prepare=lambda d: (d / "drkit.db").symlink_to("drkit.db"),
    ),
    Bad("a text as a store", "status", ("drkit.db",), code=1, files={"drkit.db": "hello, I am no database\n" * 99}),
    damaged("a store cut in its first page", lambda file: file.write_bytes(file.read_bytes()[:700])),
    damaged("a store cut at its end", cut),
    damaged("a store with pages overwritten", scribbled),
    damaged("a store of another program", by_sql("PRAGMA application_id = 7"), "drkit.db", "not a drkit store"),
    damaged(
        "a store of a newer schema", by_sql("UPDATE schema_version SET version = 99"), "drkit.db", "version 99", code=3
    ),
    damaged(
        "a store of an older schema",
        by_sql("DELETE FROM schema_version", "INSERT INTO schema_version VALUES (-1, 'x')"),
        "version -1",
        code=3,
    ),
    damaged("a store without a table", by_sql("DROP TABLE watermark"), "watermark"),
    damaged("a store without a column", by_sql("ALTER TABLE watermark DROP COLUMN batch_crc"), "batch_crc"),
    damaged(
        "a store with a value of another kind",
        by_sql("INSERT INTO link_control VALUES ('primary->dr', 'sideways', 1, 1, 'x', NULL, '[]')"),
        "link control",
        "sideways",
    ),
    damaged(
        "a store with what is no JSON",
        by_sql("INSERT INTO link_control VALUES ('primary->dr', 'active', 1, 1, 'x', NULL, '[')"),
    ),
    damaged("a store to restore over that is damaged", scribbled, command="store backup --out b.gz"),
    damaged(
        "a newer store to mirror into",
        by_sql("UPDATE schema_version SET version = 2"),
        "version 2",
        code=3,
        command="mirror --until-caught-up",
    ),
]


@rows(ROWS)
def test_it_is_told_which_store_and_why(bad, tmp_path, monkeypatch):
    refused(bad, tmp_path, monkeypatch)


# -- hosts ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def server(answer):
    """A port of this machine behind which `answer(connection)` speaks."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def serve():
            while not over.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(10)
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            over.set()
            with contextlib.suppress(OSError):
                socket.create_connection(listening.getsockname()).close()
            thread.join(15)


def as_http(connection):
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def as_ssh(connection):
    connection.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n")
    connection.recv(4096)


def as_noise(connection):
    connection.recv(4096)
    connection.sendall(b"\x00\x00\x00\x10" + b"\xa5" * 16)


def as_nothing(connection):
    connection.recv(4096)


@pytest.fixture(scope="module")
def as_tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    def answer(connection):
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(4096)

    return answer


def asked(servers, tmp_path, monkeypatch, client=""):
    """What `config check --connect` finds of a cluster at these servers: its outcome, reason and remedy."""
    config = CONFIG.replace("127.0.0.1:1", servers)
    config = config.replace(f'"{servers}"\n', f'"{servers}"\n{client}\n')
    lay(Bad("", "", config=config), tmp_path)
    settle(tmp_path, {}, monkeypatch)
    ended = in_process(["config", "check", "--connect", "--timeout", "2", "--output", "json"])
    assert (ended.code, "Traceback" in ended.err) == (2, False)
    (found,) = [
        each
        for each in json.loads(ended.out)["checks"]
        if each["key"] == "clusters.primary" and each["check"] == "cluster answers"
    ]
    assert found["outcome"] == "fail"
    assert "primary" in found["reason"]
    assert found["remedy"]
    return f"{found['reason']} {found['remedy']}"


def test_operators_keys_that_are_not_there_are_named_before_a_run_asks_for_them(tmp_path, monkeypatch):
    (tmp_path / "ana.pub").write_text("a key")
    operators = "[approvals.operators]\nana = 'ana.pub'\nbob = 'bob.pub'\n"
    lay(Bad("", "", config=f"{CONFIG}\n{operators}"), tmp_path)
    settle(tmp_path, {}, monkeypatch)
    ended = in_process(["config", "check", "--output", "json"])
    keys = {each["key"]: each for each in json.loads(ended.out)["checks"] if each["check"] == "operator's key"}
    assert (ended.code, keys["approvals.operators.ana"]["outcome"]) == (2, "ok")
    bob = keys["approvals.operators.bob"]
    assert (bob["outcome"], bob["reason"]) == ("fail", "bob.pub can't be read: No such file or directory")


SSL = '[clusters.primary.client]\n"security.protocol" = "SSL"'


@pytest.mark.parametrize(
    ("servers", "named"),
    [
        ("no-such-host.invalid:9092", "no-such-host.invalid"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("[::1]:1", "::1"),
        ("bücher.invalid:9092", "invalid"),
    ],
)
def test_a_host_that_is_none_is_named(servers, named, tmp_path, monkeypatch):
    assert named in asked(servers, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("answer", "client", "said"),
    [
        (as_http, "", "HTTP"),
        (as_http, SSL, "doesn't use TLS"),
        (as_ssh, "", "doesn't speak Kafka's protocol"),
        (as_ssh, SSL, "doesn't use TLS"),
        (as_noise, "", "127.0.0.1"),
        (as_nothing, "", "127.0.0.1"),
        (as_nothing, SSL, "127.0.0.1"),
    ],
)
def test_a_port_that_speaks_another_protocol_is_named(answer, client, said, tmp_path, monkeypatch):
    with server(answer) as port:
        assert said in asked(f"127.0.0.1:{port}", tmp_path, monkeypatch, client)


def test_a_certificate_of_an_unknown_authority_is_named(as_tls, tmp_path, monkeypatch):
    with server(as_tls) as port:
        assert "ssl.ca.location" in asked(f"127.0.0.1:{port}", tmp_path, monkeypatch, SSL)


def test_what_failed_leaves_no_store(tmp_path, monkeypatch):
    lay(Bad("", ""), tmp_path)
    settle(tmp_path, {}, monkeypatch)
    for words in (["status"], ["doctor"], ["failover", "--to", "dr", "--yes"], ["config", "check", "--connect"]):
        in_process(words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drkit.toml"]
    shutil.rmtree(tmp_path, ignore_errors=True)
