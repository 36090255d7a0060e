"""A cluster's settings as they travel: contents of files, and files again for as long as they are used."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from drkit.config.schema import ClusterConfig
from drkit.kafka.shipped import packed, unpacked
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


def test_no_file_of_the_driver_is_needed(tmp_path: Path) -> None:
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
        assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert not key.parent.exists()


def test_what_can_not_be_read_is_named(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    (tmp_path / "key.pem").unlink()
    with pytest.raises(ConfigError, match=r"ssl\.key\.location of primary: .*key\.pem can't be read"):
        packed("primary", config)
    (tmp_path / "word").unlink()
    with pytest.raises(ConfigError, match="a client property of primary can't be read"):
        packed("primary", config)
