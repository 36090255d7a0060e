"""The whole story, small: every claim that `drkit demo` makes holds, on real clusters, with real Spark."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from tests.support.clusters.guard import Guard

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.mark.lab
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_demo_holds(tmp_path, lab_guard: Guard):
    folder = tmp_path / "lab"
    lab_guard.watch(folder)
    picture = tmp_path / "evidence.svg"
    command = [
        *(sys.executable, "-m", "drkit", "demo", "--store", "sqlite", "--rate", "8000", "--kill-after", "40000"),
        *("--dir", str(folder), "--svg", str(picture), "--output", "json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads((SCHEMAS / "demo.schema.json").read_text()))
    failed = [claim for claim in document["claims"] if not claim["held"]]
    assert not failed
    assert document["error"] is None
    assert done.returncode == 0, done.stderr
    assert document["verdict"] == "held"
    assert document["rpo"]["audited_records"] == document["audits"][0]["totals"]["unseen"]
    assert document["audits"][1]["totals"]["unseen"] == 0
    assert {group["group"] for group in document["groups"]} >= {"flights-live", "flights-lagging", "flights-ahead"}
    assert "https://" not in picture.read_text()
    assert "http://" not in picture.read_text().replace("http://www.w3.org/2000/svg", "")
