"""Generates the JSON Schemas of drills from the types: `python -m tools.drill_schemas DIR` writes them.

A test compares the files in docs/schemas with the generated ones.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from drkit.drill.chaos_toolkit import ExportResult
from drkit.drill.coverage import CoverageResult
from drkit.drill.estate import EstateDrill
from drkit.drill.experiment.experiment import Experiment
from drkit.drill.judge.result import DrillHistory, DrillResult, ScheduleResult
from drkit.drill.random_drill.play import RandomResult
from drkit.drill.series import SeriesResult

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, Any]]:
    """By file name: the documents of `drkit drill … --output json`, and the experiment file."""
    documents: TypeAdapter[Any] = TypeAdapter(
        DrillResult
        | SeriesResult
        | EstateDrill
        | RandomResult
        | CoverageResult
        | ExportResult
        | DrillHistory
        | ScheduleResult
    )
    return {
        "drill.schema.json": {
            "$schema": DIALECT,
            "title": "drkit drill run|random|coverage|export|report|history|schedule --output json",
            **documents.json_schema(mode="serialization"),
        },
        "drill-experiment.schema.json": {
            "$schema": DIALECT,
            **Experiment.model_json_schema(),
            "title": "An experiment file (chaos/*.yaml)",
        },
    }


def text_of(schema: dict[str, Any]) -> str:
    """The text of a schema's file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, schema in schemas().items():
        (Path(sys.argv[1]) / name).write_text(text_of(schema), encoding="utf-8")
