"""The check of dependencies: green only where a database that knows something knows nothing of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools.advisories import KNOWN, NOT_ASKED, NOTHING, SOMETHING, Answer, asked, check, read

MINE, BAD = Path("constraints.txt"), Path("known.txt")
KNOWS = Answer(found=["urllib3 1.24.1: CVE-1, mended in 1.24.2"])


def services(**answers):
    """What each service answers about the known release, and about ours."""
    return lambda service, file: answers[service][file == MINE]


@pytest.mark.parametrize(
    ("mine", "code", "says"),
    [
        (Answer(), NOTHING, "pypi knows no vulnerability of any dependency"),
        (Answer(found=["a 1: CVE-2, mended in 2"]), SOMETHING, "1 known to pypi"),
        (Answer(skipped=["private"]), NOT_ASKED, "NOT ASKED about private"),
        (Answer(found=["a 1: CVE-2, mended in 2"], skipped=["private"]), SOMETHING, "NOT ASKED about private"),
    ],
)
def test_what_a_service_that_knows_something_says(mine, code, says, capsys) -> None:
    assert check(MINE, BAD, services(pypi=(KNOWS, mine))) == code
    assert says in capsys.readouterr().err


def test_a_registry_without_advisories_has_told_nothing(capsys) -> None:
    """Without the probe its answer about ours, which names nothing, would be green."""
    silent = Answer(skipped=["urllib3"])
    osv = Answer(failure="no such host")
    assert check(MINE, BAD, services(pypi=(silent, Answer()), osv=(osv, osv))) == NOT_ASKED
    told = capsys.readouterr().err
    assert f"NOT ASKED: no advisory database answers (pypi: it knows no vulnerability of {KNOWN}" in told
    assert "osv: no such host" in told


def test_another_service_is_asked_where_the_first_does_not_answer(capsys) -> None:
    away = Answer(failure="no such host")
    assert check(MINE, BAD, services(pypi=(KNOWS, away), osv=(KNOWS, Answer()))) == NOTHING
    assert "osv knows no vulnerability" in capsys.readouterr().err


def test_reports_are_read() -> None:
    report = {
        "dependencies": [
            {"name": "a", "version": "1", "vulns": [{"id": "P-1", "aliases": ["CVE-1"], "fix_versions": ["2", "3"]}]},
            {"name": "b", "version": "1", "vulns": [{"id": "P-2", "aliases": [], "fix_versions": []}]},
            {"name": "c", "version": "1", "vulns": []},
            {"name": "d", "skip_reason": "not found"},
        ]
    }
    answer = read(json.dumps(report), "")
    assert answer.found == ["a 1: P-1/CVE-1, mended in 2, 3", "b 1: P-2, mended in no release yet"]
    assert (answer.skipped, answer.failure) == (["d"], None)
    assert read("", "Traceback\nConnectionError: no such host").failure == "ConnectionError: no such host"
    assert read("{}", "").failure == "pip-audit wrote no report"


def test_the_tool_is_called_for_pinned_packages_only(tmp_path: Path) -> None:
    tool = tmp_path / "pip-audit"
    code = (
        'import json, sys; print(json.dumps({"dependencies": [{"name": " ".join(sys.argv[1:]), "skip_reason": ""}]}))'
    )
    tool.write_text(f"#!{sys.executable}\n{code}\n")
    tool.chmod(0o700)
    answer = asked(tool, "osv", MINE, ["--ignore-vuln", "P-1"])
    (words,) = answer.skipped
    assert words.startswith("--requirement constraints.txt --no-deps --disable-pip --format json")
    assert words.endswith("--vulnerability-service osv --progress-spinner off --ignore-vuln P-1")
