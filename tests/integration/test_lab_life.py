"""A lab's life: killed, paused, restarted, half started, side by side with another; real brokers throughout."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jsonschema
import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.config import load_config
from drkit.lab import Lab, kafka_node, process
from drkit.lab.layout import LabDir
from drkit.lab.process import kill
from drkit.model.errors import ConfigError, DrkitError, Refused
from tests.support.clusters.guard import Guard
from tests.support.collection.sampling import sampled, some_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("lives of a lab", 4)]

_ROOT = Path(__file__).parents[2]
_SCHEMAS = _ROOT / "docs" / "schemas"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    """A lab of this module's own, of one cluster: its tests kill and pause."""
    folder = tmp_path_factory.mktemp("own")
    lab_guard.watch(folder)
    quick = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "200"}
    lab = Lab.up(folder, store="sqlite", clusters=("primary",), broker_config=quick)
    yield lab
    lab.down()


@pytest.fixture
def running(own: Lab) -> Lab:
    """The module's lab, up whatever the test before left."""
    for name, found in process.marked(own.dir).items():
        if process.is_paused(found):
            own.resume(name)
    return Lab.up(own.dir)


@pytest.fixture
def drkit() -> Callable[..., dict[str, object]]:
    """Run `drkit lab … --output json` in this process; returns its document, with the exit code in it."""

    def run(*arguments: str) -> dict[str, object]:
        result = CliRunner().invoke(application(), ["lab", *arguments, "--output", "json"])
        document = json.loads(result.stdout)
        jsonschema.validate(document, json.loads((_SCHEMAS / _schema_of(document)).read_text()))
        return {"exit": result.exit_code, **document}

    return run


def _schema_of(document: dict[str, object]) -> str:
    return "error.schema.json" if "error" in document else "lab.schema.json"


def _states(lab: Lab) -> dict[str, str]:
    return {each.name: each.state for each in lab.status()}


def _admin(lab: Lab) -> AdminClient:
    return AdminClient({"bootstrap.servers": lab.bootstrap("primary"), "log_level": 0})


def _create(lab: Lab, topic: str, replication: int = 1) -> None:
    admin = _admin(lab)  # its futures fail when it is collected
    for future in admin.create_topics([NewTopic(topic, 1, replication)]).values():
        future.result(30)


def _topics(lab: Lab) -> set[str]:
    return set(_admin(lab).list_topics(timeout=30).topics)


def test_up_again_starts_nothing_and_says_so(running: Lab):
    before = running.status()
    again = Lab.up(running.dir)
    assert again.started == []
    assert again.status() == before


def test_a_killed_node_is_down_and_comes_back_on_its_port_with_its_data(running: Lab, unique_name: str):
    _create(running, unique_name)
    assert running.kill("primary") == ["primary-1"]
    assert _states(running) == {"primary-1": "down"}
    assert running.kill("primary") == []
    address = running.bootstrap("primary")
    assert running.restart("primary-1") == ["primary-1"]
    assert Lab.open(running.dir).bootstrap("primary") == address
    assert unique_name in _topics(running)


def test_restart_of_a_node_that_runs_makes_a_new_process(running: Lab):
    before = running.status()[0]
    running.restart("primary")
    after = running.status()[0]
    assert (after.state, after.port) == ("up", before.port)
    assert after.pid != before.pid


def test_a_paused_node_stands_still_until_resumed(running: Lab):
    assert running.pause("primary-1") == ["primary-1"]
    assert _states(running) == {"primary-1": "paused"}
    assert Lab.up(running.dir).started == []
    assert running.resume("primary-1") == ["primary-1"]
    wait_until(lambda: _states(running) == {"primary-1": "up"}, what="the broker's answer after the pause")


def test_a_dead_node_can_be_neither_paused_nor_resumed(running: Lab):
    running.kill("primary-1")
    with pytest.raises(Refused, match="not running"):
        running.pause("primary")
    with pytest.raises(Refused, match="drkit lab restart primary-1"):
        running.resume("primary-1")


def test_unknown_nodes_are_refused_before_anything_is_done(running: Lab):
    for verb in (running.kill, running.pause, running.resume, running.restart):
        with pytest.raises(ConfigError, match=r"no node 'dr-1'.*primary-1"):
            verb("primary-1", "dr-1")
    assert _states(running) == {"primary-1": "up"}


def test_a_reused_pid_is_noticed_and_its_new_owner_left_alone(running: Lab):
    running.kill("primary-1")
    bystander = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        process.note(LabDir(running.dir).process_file("primary-1"), psutil.Process(bystander.pid))
        status = running.status()[0]
        assert status.state == "down"
        assert status.reason is not None
        assert f"pid {bystander.pid} is another program now" in status.reason
        assert running.kill("primary-1") == []
        assert Lab.up(running.dir).started == ["primary-1"]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_half_started_lab_is_completed(running: Lab):
    """As a SIGKILL of `lab up` leaves it: a process that was never noted, and no configuration yet."""
    pid = running.status()[0].pid
    LabDir(running.dir).process_file("primary-1").unlink()
    running.config_path.unlink()
    assert running.status()[0].pid == pid
    assert Lab.up(running.dir).started == []
    assert load_config(running.config_path).clusters["primary"].bootstrap_servers == running.bootstrap("primary")


def test_a_taken_port_is_refused_with_its_holder(running: Lab):
    running.kill("primary-1")
    port = running.nodes[0].port
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        with pytest.raises(Refused, match=rf"the port {port} of primary-1 is taken by pid {os.getpid()}"):
            Lab.up(running.dir)
    assert process.marked(running.dir) == {}


def test_another_shape_than_the_labs_is_refused(running: Lab):
    with pytest.raises(Refused, match="drkit lab down"):
        Lab.up(running.dir, brokers=3)
    assert _states(running) == {"primary-1": "up"}


def test_two_labs_side_by_side_do_not_touch_each_other(running: Lab, lab: Lab):
    mine, theirs = ({port for node in each.nodes for port in (node.port, node.peer_port)} for each in (running, lab))
    assert not mine & theirs
    running.kill("primary")
    assert _states(lab) == {"primary-1": "up", "dr-1": "up"}
    assert _states(running) == {"primary-1": "down"}


def test_the_command_line_shows_the_lab(running: Lab, drkit: Callable[..., dict[str, object]]):
    shown = drkit("status", "--dir", str(running.dir))
    node = running.status()[0]
    assert shown == {
        "exit": 0,
        "dir": str(running.dir),
        "config": str(running.config_path),
        "nodes": [
            {
                "name": "primary-1",
                "cluster": "primary",
                "state": "up",
                "pid": node.pid,
                "port": node.port,
                "bootstrap": running.bootstrap("primary"),
                "reason": None,
            }
        ],
    }


def test_the_command_line_kills_and_pauses(running: Lab, drkit: Callable[..., dict[str, object]]):
    folder = ("--dir", str(running.dir))
    assert drkit("pause", "primary", *folder)["paused"] == ["primary-1"]
    assert drkit("resume", "primary-1", *folder)["resumed"] == ["primary-1"]
    assert drkit("kill", "primary-1", *folder)["killed"] == ["primary-1"]
    assert drkit("pause", "primary-1", *folder)["exit"] == 3
    assert drkit("kill", "nobody", *folder)["exit"] == 2
    assert drkit("up", *folder)["started"] == ["primary-1"]


def test_without_a_lab_the_command_line_says_how_to_make_one(tmp_path: Path, drkit: Callable[..., dict[str, object]]):
    for arguments in (("status",), ("kill", "primary"), ("down",)):
        shown = drkit(*arguments, "--dir", str(tmp_path))
        assert shown["exit"] == 3
        assert f"there is no lab in {tmp_path}" in str(shown["error"])


def test_a_node_that_fails_to_start_shows_its_log_and_leaves_nothing(tmp_path: Path):
    folder = tmp_path / "failing"
    with pytest.raises(DrkitError, match="primary-1 ended while it was starting") as caught:
        Lab.up(folder, store="sqlite", clusters=("primary",), broker_config={"num.io.threads": "plenty"})
    assert "num.io.threads" in caught.value.meaning
    assert process.marked(folder) == {}
    assert not folder.exists()


def test_down_keeps_the_data_if_told_to_and_takes_paused_nodes_down(tmp_path: Path, lab_guard: Guard, unique_name: str):
    folder = tmp_path / "kept"
    lab_guard.watch(folder)
    lab = Lab.up(folder, store="sqlite", clusters=("primary",))
    _create(lab, unique_name)
    assert lab.down(keep_data=True) == ["primary-1"]
    assert _states(lab) == {"primary-1": "down"}
    with _locked(kafka_node.lock_file(folder / "nodes" / "primary-1")) as holder:
        with pytest.raises(DrkitError, match=r"primary-1 ended while it was starting \(exit code 1\)") as caught:
            Lab.up(folder)
        assert f"is locked by pid {holder} (" in caught.value.meaning
        assert "Failed to acquire lock" in caught.value.meaning, "the broker's own words"
    lab = Lab.up(folder)
    assert unique_name in _topics(lab)
    lab.pause("primary")
    (folder / "notes.txt").write_text("mine")
    assert lab.down() == ["primary-1"]
    assert process.marked(folder) == {}
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


@contextmanager
def _locked(file: Path) -> Iterator[int]:
    """Another process, of this pid, holds a lock on the file."""
    program = (
        "import fcntl, sys; opened = open(sys.argv[1], 'w'); fcntl.lockf(opened, fcntl.LOCK_EX); print(flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"{program}; sys.stdin.read()", str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        yield other.pid


def test_down_works_although_the_labs_own_file_is_damaged(
    tmp_path: Path, lab_guard: Guard, drkit: Callable[..., dict[str, object]]
):
    folder = tmp_path / "damaged"
    lab_guard.watch(folder)
    Lab.up(folder, store="sqlite", clusters=("primary",))
    LabDir(folder).layout_file.write_text("{")
    assert drkit("status", "--dir", str(folder))["exit"] == 1
    assert drkit("down", "--dir", str(folder))["stopped"] == ["primary-1"]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("number", "code", "moment"),
    sampled(
        "an interrupted lab up",
        [
            pytest.param(signal.SIGINT, 130, "spawned"),
            pytest.param(signal.SIGTERM, 143, "spawned"),
            pytest.param(signal.SIGINT, 130, "answering"),
        ],
        1,
    ),
)
def test_an_interrupted_up_leaves_nothing(
    tmp_path: Path, lab_guard: Guard, number: signal.Signals, code: int, moment: str
):
    folder = tmp_path / "interrupted"
    lab_guard.watch(folder)
    command = [sys.executable, "-m", "drkit.cli.main", "lab", "up", "--store", "sqlite", "--dir", str(folder)]
    up = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert up.stderr is not None
    if moment == "spawned":
        wait_until(lambda: process.marked(folder), what="the first node's process")
    else:
        assert any("answers after" in line for line in iter(up.stderr.readline, ""))
    up.send_signal(number)
    up.stderr.read()
    up.stderr.close()
    assert up.wait(60) == code
    assert process.marked(folder) == {}
    assert not folder.exists()


def test_an_up_that_was_killed_is_taken_down_all_the_same(
    tmp_path: Path, lab_guard: Guard, drkit: Callable[..., dict[str, object]]
):
    folder = tmp_path / "killed"
    lab_guard.watch(folder)
    command = [sys.executable, "-m", "drkit.cli.main", "lab", "up", "--store", "sqlite", "--dir", str(folder)]
    up = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: process.marked(folder), what="the first node's process")
    up.kill()
    up.wait()
    assert drkit("down", "--dir", str(folder))["exit"] == 0
    assert process.marked(folder) == {}
    assert not folder.exists()


def test_a_lab_of_three_brokers_serves_without_one(tmp_path: Path, lab_guard: Guard, unique_name: str):
    folder = tmp_path / "three"
    lab_guard.watch(folder)
    lab = Lab.up(folder, 3, "sqlite", clusters=("primary",))
    _create(lab, unique_name, replication=3)
    lab.kill("primary-2")
    wait_until(lambda: unique_name in _topics(lab), what="an answer of two brokers of three")
    wait_until(
        lambda: _states(lab) == {"primary-1": "up", "primary-2": "down", "primary-3": "up"},
        what="the two others' answers",
    )
    assert Lab.up(folder).started == ["primary-2"]
    assert lab.down() == ["primary-1", "primary-2", "primary-3"]


def test_the_guard_takes_a_lab_down_when_its_test_process_is_killed(tmp_path: Path):
    folder = tmp_path / "guarded"
    code = (
        "import os, sys; from pathlib import Path; from drkit.lab import Lab\n"
        "from tests.support.clusters.guard import Guard\n"
        "folder = Path(sys.argv[1]); guard = Guard(); guard.watch(folder)\n"
        "Lab.up(folder, store='sqlite', clusters=('primary',)); os.kill(os.getpid(), 9)"
    )
    try:
        child = subprocess.run([sys.executable, "-c", code, folder], cwd=_ROOT, check=False)
        assert child.returncode == -signal.SIGKILL
        wait_until(lambda: not process.marked(folder) and not folder.exists(), what="the guard's work")
    finally:
        kill(process.marked(folder).values())
