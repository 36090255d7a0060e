"""The WAN bench: rates from observations, and the reason where it can't be measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import processes, wan
from bench.clusters import Cluster
from bench.mirrors import Job, job_toml
from drkit.config import load_config


def test_the_first_third_does_not_count() -> None:
    observations = [(0.0, 0), (5.0, 1_000), (6.0, 40_000), (7.0, 70_000), (8.0, 100_000)]
    assert wan._steady_rate(observations, 100_000) == pytest.approx(30.0)
    assert wan._steady_rate(observations[:3], 100_000) is None, "one look is no span"
    assert wan._steady_rate([], 100_000) is None


def test_without_the_script_it_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    delay = tmp_path / "delay.py"
    assert wan.main(["--delay", str(delay)]) == 0
    assert "delay.py doesn't exist" in capsys.readouterr().out
    delay.touch()
    monkeypatch.setattr(processes.os, "geteuid", lambda: 0)
    monkeypatch.setattr(processes.shutil, "which", lambda name: None if name == "iptables" else name)
    assert wan.main(["--delay", str(delay)]) == 0
    assert "skipped: iptables not on PATH" in capsys.readouterr().out
    monkeypatch.setattr(processes.os, "geteuid", lambda: 1000)
    assert wan.main(["--delay", str(delay)]) == 0
    assert "need root" in capsys.readouterr().out


def test_a_links_buffer_is_configured(tmp_path: Path) -> None:
    job = Job(tmp_path, Cluster("primary", "a:1"), Cluster("dr", "b:2"), "bench-.*", "none")
    path = tmp_path / "drkit.toml"
    for lines, found in (((), 32 << 20), ((wan.buffer_line(7 << 20),), 7 << 20)):
        path.write_text(job_toml(job, lines))
        assert load_config(path).links[0].link().buffer_bytes == found
