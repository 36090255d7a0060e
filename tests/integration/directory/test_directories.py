"""Every kind of directory, on its real server: the same promises."""

import json
import stat
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.config import ClusterConfig, Config, LinkConfig
from drkit.config.schema.directory import DirectoryConfig
from drkit.directory import Entry, open_directories
from drkit.lab.ports import free_ports
from drkit.model.errors import DrkitError, Refused, Unreachable
from drkit.model.topology import LinkId
from tests.support.clusters.directories import KEY, ZONE, bind, consul, consul_like, etcd

LINK = LinkId("primary", "dr")
AT = datetime(2026, 11, 20, 4, 3, 10, 123000, tzinfo=UTC)
FIRST = Entry("primary->dr", "dr", "kafka-1.us:9092,kafka-2.us:9093", 2, "RUN1", AT)
BACK = Entry("primary->dr", "primary", "10.1.2.3:9092,10.1.2.4:9092", 4, "RUN2", AT)

COMMAND = """
import json, os, sys
place = sys.argv[1]
if sys.argv[2] == "read":
    if os.path.exists(place):
        sys.stdout.write(open(place).read())
else:
    entry = json.load(sys.stdin)
    assert str(entry["epoch"]) == os.environ["DRKIT_EPOCH"] and entry["active"] == os.environ["DRKIT_ACTIVE"]
    open(place, "w").write(json.dumps(entry))
"""


def opened(**given):
    cluster = ClusterConfig(bootstrap_servers="localhost:1")
    config = Config(
        clusters={"primary": cluster, "dr": cluster.model_copy(update={"bootstrap_servers": "localhost:2"})},
        links=(LinkConfig(source="primary", target="dr"),),
        directory=(DirectoryConfig(**given),),
    )
    (directory,) = open_directories(config, LINK)
    return directory


@contextmanager
def place(kind, folder):
    """The configuration of an empty directory of this kind."""
    if kind == "file":
        yield {"url": f"file://{folder}/active.json"}
    elif kind == "command":
        (folder / "script.py").write_text(COMMAND)
        yield {"command": (sys.executable, str(folder / "script.py"), str(folder / "active.json"))}
    elif kind == "dns":
        with bind(folder) as server:
            yield {"url": f"dns://127.0.0.1:{server.port}/{ZONE}/kafka", "tsig_name": KEY, "tsig_secret": server.secret}
    elif kind == "etcd":
        with etcd(folder) as port:
            yield {"url": f"etcd://127.0.0.1:{port}/drkit/active"}
    elif kind == "consul":
        with consul(folder) as port:
            yield {"url": f"consul://127.0.0.1:{port}/drkit/active", "token": "none"}
    else:
        with consul_like() as port:
            yield {"url": f"consul://127.0.0.1:{port}/drkit/active"}


@pytest.mark.parametrize("kind", ["file", "command", "dns", "etcd", "consul", "consul-like"])
def test_what_is_published_is_read_and_only_a_newer_epoch_replaces_it(kind, tmp_path):
    with place(kind, tmp_path) as given:
        directory = opened(**given)
        assert directory.read() is None
        assert directory.publish(FIRST) is True
        assert directory.read() == FIRST
        assert directory.publish(FIRST) is False, "publishing twice changes nothing"
        assert directory.publish(replace(FIRST, run="RUN1b")) is False, "another run of the same decision"
        with pytest.raises(Refused, match="epoch 2"):
            directory.publish(replace(BACK, epoch=2))
        assert directory.publish(BACK) is True
        assert opened(**given).read() == BACK
        with pytest.raises(Refused, match=r"says primary .*, epoch 4 .*written by run RUN2"):
            directory.publish(FIRST)
        assert directory.read() == BACK

        if kind != "command":  # a command has to see to that itself
            entries = [replace(FIRST, epoch=epoch, run=f"R{epoch}") for epoch in range(5, 13)]
            threads = [threading.Thread(target=_race, args=(opened(**given), entry)) for entry in entries]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            kept = directory.read()
            assert kept in entries
            assert directory.publish(replace(entries[-1], epoch=99)) is True
        assert given.get("token") is None or "none" not in directory.name


def _race(directory, entry):
    """Publish against others: an older one may be refused, or give up; it never replaces a newer one."""
    try:
        directory.publish(entry)
    except Refused:
        kept = directory.read()
        assert kept.epoch > entry.epoch
    except DrkitError as error:
        assert "changed each time" in error.what  # noqa: PT017 - another outcome that is right


def test_a_file_is_replaced_in_one_step_and_stays_readable(tmp_path):
    path = tmp_path / "active.json"
    directory = opened(url=f"file://{path}")
    directory.publish(FIRST)
    assert json.loads(path.read_text()) == {
        "format": "drkit-directory/1",
        "link": "primary->dr",
        "active": "dr",
        "bootstrap_servers": ["kafka-1.us:9092", "kafka-2.us:9093"],
        "epoch": 2,
        "run": "RUN1",
        "at": "2026-11-20T04:03:10.123Z",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o640)
    before = path.stat().st_ino
    with path.open() as reader:  # a client in the middle of reading
        directory.publish(BACK)
        assert json.load(reader)["active"] == "dr"
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.write_text("somebody else's\n")
    with pytest.raises(DrkitError, match="not an entry of drkit"):
        directory.publish(replace(BACK, epoch=9))
    assert path.read_text() == "somebody else's\n"
    with pytest.raises(DrkitError, match="can't be written"):
        opened(url=f"file://{tmp_path}/nowhere/active.json").publish(FIRST)


def test_dns_clients_resolve_the_cluster_and_only_the_key_may_change_it(tmp_path):
    with bind(tmp_path) as server:
        url = f"dns://127.0.0.1:{server.port}/{ZONE}"
        key = {"tsig_name": KEY, "tsig_secret": server.secret}
        directory = opened(url=f"{url}/kafka", ttl=5, **key)
        directory.publish(FIRST)
        assert server.ask("kafka", "CNAME") == ["kafka-1.us."]
        assert server.ask("_kafka._tcp.kafka", "SRV") == ["0 0 9092 kafka-1.us.", "0 0 9093 kafka-2.us."]
        directory.publish(BACK)
        assert server.ask("kafka", "A") == ["10.1.2.3", "10.1.2.4"]
        assert server.ask("kafka", "CNAME") == []
        assert server.ask("_kafka._tcp.kafka", "SRV") == []
        directory.publish(replace(FIRST, epoch=5))
        assert server.ask("kafka", "CNAME") == ["kafka-1.us."]

        with pytest.raises(DrkitError, match="REFUSED"):
            opened(url=f"{url}/kafka").publish(replace(BACK, epoch=6))
        wrong = {**key, "tsig_secret": "c29tZSBvdGhlciBzZWNyZXQ="}
        with pytest.raises(DrkitError, match="unusable response") as caught:
            opened(url=f"{url}/kafka", **wrong).publish(replace(BACK, epoch=6))
        assert wrong["tsig_secret"] not in str(caught.value)
        with pytest.raises(DrkitError, match="not an entry of drkit"):
            opened(url=f"{url}/taken", **key).publish(FIRST)
        with pytest.raises(DrkitError, match=r"REFUSED|not an authority"):
            opened(url=f"dns://127.0.0.1:{server.port}/other.test/kafka", **key).publish(FIRST)
        assert directory.read() == replace(FIRST, epoch=5)


@pytest.mark.parametrize("kind", ["dns", "etcd", "consul"])
def test_a_server_that_is_gone_is_unreachable(kind):
    (port,) = free_ports(1)
    directory = opened(url=f"{kind}://127.0.0.1:{port}/{ZONE}/kafka", timeout_seconds=1)
    with pytest.raises(Unreachable, match=f"{kind}://127.0.0.1:{port}.* does not answer"):
        directory.read()


def test_a_command_that_fails_hangs_or_knows_better(tmp_path):
    shell = ("/bin/sh", "-c")
    for script, error, words in (
        ("echo no disk >&2; exit 9", DrkitError, r"exit code 9.*no disk"),
        ("[ $0 = read ] || { echo newer there; exit 3; }", Refused, "newer there"),
        ("sleep 600 & wait", Unreachable, "did not end within"),
    ):
        with pytest.raises(error, match=words):
            opened(command=(*shell, script), timeout_seconds=0.5).publish(FIRST)
    with pytest.raises(DrkitError, match="can't be started"):
        opened(command=(str(tmp_path / "absent"),)).read()
