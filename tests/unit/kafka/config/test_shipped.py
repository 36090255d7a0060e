"""A cluster's settings as they travel: contents of files, and files again for as long as they are used."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.config.client_config import packed, unpacked
from drkit.model.errors import ConfigError


def cluster(folder: Path) -> ClusterConfig:
    (folder / "ca.pem").write_text("authority\n")
    (folder / "key.pem").write_text("key\n")
    (folder / "word").write_text("hunter2\n")
    client = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.key.location": str(folder / "key.pem"),
        "ssl.key.password": {"file": str(folder / "word")},
    }
    return ClusterConfig.model_validate({"bootstrap_servers": "h:1", "client": client})


@pytest.mark.parametrize("in_memory", [True, False])
def test_no_file_of_the_driver_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool) -> None:
    if in_memory and not hasattr(os, "memfd_create"):
        pytest.skip("files in memory are Linux's")
    monkeypatch.setattr("drkit.kafka.config.client_config._MEMORY", in_memory)
    shipped = json.loads(json.dumps(packed("primary", cluster(tmp_path))))
    for each in tmp_path.iterdir():
        each.unlink()
    with unpacked(shipped) as found:
        properties = found.properties()
        assert found.bootstrap_servers == "h:1"
        assert (properties["security.protocol"], properties["ssl.key.password"]) == ("SSL", "hunter2")
        key = Path(properties["ssl.key.location"])
        assert (Path(properties["ssl.ca.location"]).read_text(), key.read_text()) == ("authority\n", "key\n")
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert [key.read_text() for _ in range(2)] == ["key\n", "key\n"], "as often as it is opened"
        if not in_memory:
            assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert not key.exists()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files in memory are Linux's")
def test_a_worker_that_is_killed_leaves_no_key_behind(tmp_path: Path) -> None:
    shipped = json.dumps(packed("primary", cluster(tmp_path)))
    left = tmp_path / "left"
    left.mkdir()
    program = (
        "import json, sys; from drkit.kafka.config.client_config import unpacked\n"
        "with unpacked(json.loads(sys.argv[1])) as found:\n"
        "    print(open(found.properties()['ssl.key.location']).read().strip(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, shipped],
        env={**os.environ, "TMPDIR": str(left)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "key\n"
        worker.kill()
        worker.wait(20)
    assert list(left.iterdir()) == []


def test_what_can_not_be_read_is_named(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    (tmp_path / "key.pem").unlink()
    with pytest.raises(ConfigError, match=r"ssl\.key\.location of primary: .*key\.pem can't be read"):
        packed("primary", config)
    (tmp_path / "word").unlink()
    with pytest.raises(ConfigError, match="a client property of primary can't be read"):
        packed("primary", config)
