"""A planned move waits for a busy source; an unplanned one takes a silent one to be gone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.cli.wiring.context import Invocation
from drkit.kafka.admin.clusters import PATIENCE_SECONDS, Clusters
from drkit.model.errors import ConfigError

CONFIG = """
[clusters.primary]
bootstrap_servers = "127.0.0.1:1"
[clusters.dr]
bootstrap_servers = "127.0.0.1:2"
[store]
url = "sqlite:///:memory:"
[[links]]
source = "primary"
target = "dr"
topics = [".*"]
"""


@pytest.mark.parametrize(
    ("mode", "seconds"), [(["--planned"], 10.0), (["--unplanned"], PATIENCE_SECONDS), ([], PATIENCE_SECONDS)], ids=str
)
def test_a_silent_source_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: list[str], seconds: float
) -> None:
    connecting = Invocation.connecting

    def begun(run: Invocation, aliases: Iterable[str], timeout: float | None = None) -> Clusters:
        raise ConfigError(f"{[connecting(run, [], timeout).reach(alias).seconds for alias in aliases]}")

    monkeypatch.setattr(Invocation, "connecting", begun)
    config = tmp_path / "drkit.toml"
    config.write_text(CONFIG)
    words = ["failover", "--to", "dr", *mode, "--dry-run", "--config", str(config)]
    done = CliRunner().invoke(application(words[:1]), words)
    assert f"[{seconds}]" in done.stderr, done.stderr
