"""`drkit serve` whose store is away at its start: it serves, says what it doesn't know and why, and shows what it knows
once the store answers. The process is the real one, and so is the lock of the store."""

import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from drkit.cli.verbs.mirroring.serve import _Shown
from drkit.cli.wiring.awaited_store import once_it_answers
from drkit.model.errors import StoreMissing, Unreachable
from drkit.store import open_store
from tests.support.wait import wait_until

CONFIGURATION = """
[clusters.primary]
bootstrap_servers = "127.0.0.1:1"
[clusters.dr]
bootstrap_servers = "127.0.0.1:2"
[store]
url = "{url}"
[[links]]
source = "primary"
target = "dr"
topics = ["orders"]
"""


@pytest.fixture
def held_store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A store that another process holds: `close` lets it go."""
    path = tmp_path / "drkit.db"
    (tmp_path / "drkit.toml").write_text(CONFIGURATION.format(url=f"sqlite:///{path}"))
    open_store(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        yield holder


def answer(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=60) as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_page_waits_for_its_store_and_says_so(held_store: sqlite3.Connection, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "drkit", "serve", "--config", str(tmp_path / "drkit.toml"), "-o", "json"]
    command += ["--listen", "127.0.0.1:0", "--timeout", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = json.loads("".join(server.stdout.readline() for _ in range(3)))["url"]
            assert answer(f"{url}/livez") == (200, "ok"), "a restart would not help"
            code, said = answer(f"{url}/readyz")
            assert code == 503
            assert "the store is away, so nothing is known" in said
            assert "database is locked" in said
            assert answer(f"{url}/status.json")[0] == answer(f"{url}/api/runs")[0] == 503
            assert "the store is away" in answer(f"{url}/api/runs/of-yesterday")[1]
            summary = json.loads(answer(f"{url}/api/summary")[1])
            assert [each["answer"] for each in summary["decisions"]] == ["unknown"]
            assert "database is locked" in summary["decisions"][0]["obstructions"][0]["what"]
            assert "database is locked" in summary["status"]["error"]["what"]
            assert "database is locked" in summary["no_audit"]
            assert summary["history"]["reason"] == "the store has not answered yet"
            held_store.close()
            wait_until(lambda: answer(f"{url}/readyz")[0] == 200, 120, "a status")
            wait_until(lambda: answer(f"{url}/api/runs")[0] == 200, 120, "the runs of the store")
            assert "there is no run 'of-yesterday'" in answer(f"{url}/api/runs/of-yesterday")[1]
            summary = json.loads(answer(f"{url}/api/summary")[1])
            assert (summary["status"]["error"], summary["history"]["reason"]) == (None, None)
            server.send_signal(signal.SIGTERM)
            _, stderr = server.communicate(timeout=60)
            assert server.returncode == 0
            assert "waiting for the store" in stderr
        finally:
            server.kill()


def test_a_page_whose_store_stays_away_ends_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "drkit.toml").write_text(CONFIGURATION.format(url="cassandra://127.0.0.1:3/drkit?dc=dr"))
    command = [sys.executable, "-m", "drkit", "serve", "--config", str(tmp_path / "drkit.toml"), "-o", "json"]
    command += ["--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = json.loads("".join(server.stdout.readline() for _ in range(3)))["url"]
            assert "127.0.0.1:3" in answer(f"{url}/readyz")[1]
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=60)
            assert server.returncode == 0
        finally:
            server.kill()


def test_a_page_whose_store_is_replaced_ends_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "drkit.db"
    (tmp_path / "drkit.toml").write_text(CONFIGURATION.format(url=f"sqlite:///{path}"))
    open_store(f"sqlite:///{path}").close()
    command = [sys.executable, "-m", "drkit", "serve", "--config", str(tmp_path / "drkit.toml"), "-o", "json"]
    command += ["--listen", "127.0.0.1:0", "--timeout", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = json.loads("".join(server.stdout.readline() for _ in range(3)))["url"]
            assert answer(f"{url}/readyz")[0] == 200
            open_store(f"sqlite:///{tmp_path}/other.db").close()
            (tmp_path / "other.db").replace(path)
            _, stderr = server.communicate(timeout=120)
            assert server.returncode == 3
            assert "was removed, or replaced by another file, while it was open" in " ".join(stderr.split())
        finally:
            server.kill()


def test_a_reload_while_the_store_returns_is_not_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Page:
        shown: object = None

        def reconfigure(self, sources: object, objectives: object) -> None:
            del sources
            self.shown = objectives

    def config(objectives: str) -> Any:
        return SimpleNamespace(objectives=objectives, links=())

    page: Any = Page()
    shown = _Shown(cast("Any", SimpleNamespace(config=config("before"))), None, None)
    reload = threading.Thread(target=lambda: shown.show(page, config("reloaded")))

    def slow_sources() -> Any:
        if threading.current_thread() is not reload:
            reload.start()
            reload.join(0.5)  # a reload that isn't held up has ended by then

    monkeypatch.setattr(shown, "sources", slow_sources)
    shown.show(page)
    reload.join()
    assert page.shown == "reloaded"


def test_what_is_waited_for_is_said_at_each_attempt_and_what_no_waiting_mends_ends_it() -> None:
    answers: list[Exception | str] = [Unreachable("away"), "the store"]
    said: list[str] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            del timeout
            return self.is_set()

    def read() -> str:
        found = answers.pop(0)
        if isinstance(found, str):
            return found
        raise found

    assert once_it_answers(read, Stop(), lambda error: said.append(error.what)) == "the store"
    assert said == ["away"]
    answers[:] = [StoreMissing("there is none")]
    with pytest.raises(StoreMissing):
        once_it_answers(read, Stop(), said.append)
    ended = Stop()
    answers[:] = [Unreachable("away"), "nobody asks again"]
    assert once_it_answers(read, ended, lambda _: ended.set()) is None
