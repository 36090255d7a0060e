"""Results of drills, as one that was played leaves them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drkit.drill.judge.result import DrillResult


def result_of(run: str, folder: Path | str, **changes: Any) -> DrillResult:
    """A result with one step, one check that failed, one objective that is unknown; `changes` by key."""
    measured = {
        "rpo_records": None,
        "rpo_seconds": None,
        "rto_seconds": None,
        "acknowledged": 1,
        "unknown": 0,
        "landed": None,
        "reread": None,
    }
    link = {"link": "primary->dr", "topic": "t", "target_topic": "t", "group": "g", "moved": False, "failover": None}
    fields = {
        "run": run,
        "title": "t",
        "hypothesis": "h",
        "file": "x.yaml",
        "verdict": "passed",
        "exit_code": 0,
        "reasons": [],
        "started_at": datetime(2026, 11, 20, 4, 3, tzinfo=UTC),
        "ended_at": datetime(2026, 11, 20, 4, 4, tzinfo=UTC),
        "seconds": 60.0,
        "steady_state": {"reached": True, "reason": None, "seconds": 1.0},
        "steps": [
            {"section": "method", "step": "kill", "line": 3, "outcome": "ok", "reason": None, "seconds": 0.1},
        ],
        "checks": [
            {
                "check": "lost",
                "link": "primary->dr",
                "outcome": "failed",
                "anomalies": 1,
                "reason": None,
                "witnesses": [{"cluster": "dr", "partition": 0, "offset": None, "record": "k#1", "text": "gone"}],
            }
        ],
        "objectives": [{"name": "rto_seconds", "objective": 5, "measured": None, "outcome": "unknown"}],
        "measured": measured,
        "links": [{**link, "measured": measured}],
        "failover": None,
        "folder": str(folder),
    }
    return DrillResult.model_validate({**fields, **changes})
