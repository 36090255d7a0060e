"""Where faults strike: by the experiments' files, and by what kept drills really injected."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from drkit.cli.views.drill_view import show_coverage
from drkit.drill import faults
from drkit.drill.coverage import (
    APPLICATIONS,
    CELLS,
    NETWORK,
    STAGES,
    STATES,
    TARGETS,
    TOPICS,
    Cell,
    KeptDrill,
    coverage,
    planned_strikes,
    read_found,
    read_kept,
    strikes_counted,
    struck_cells,
)
from drkit.drill.experiment.reader import library_files, load_experiment
from drkit.drill.faults.inject import FAULTS
from drkit.drill.results.archive import Drills
from drkit.evidence import verifier
from drkit.failover.context.state_machine import PATHS, Kind
from tests.support.drills.drill_results import result_of
from tools.drill_schemas import schemas

TEXT = """\
title: %s
hypothesis: h
lab: { brokers: 3 }
steady_state: { conditions: [{ condition: answers, cluster: dr }] }
method:
  - do: workload
  - do: mirror
  - do: restart
    node: mirror
  - do: kill
    node: primary-2
  - do: pause
    node: primary
  - do: failover
    resumes: 1
    strikes:
      - at: drain
        faults:
          - { do: pause, node: mirror }
          - { do: resume, node: mirror }
      - at: commit
        faults:
          - { do: kill, node: run }
  - do: restart
    node: dr
  - do: failback
    strikes:
      - at: salvage
        faults:
          - { do: restart, node: dr-1 }
  - do: kill
    node: mirror
checks: [duplicated]
rollbacks:
  - do: kill
    node: dr
"""
STRUCK = [
    ("restart mirror", "steady"),
    ("kill one broker of primary", "steady"),
    ("pause primary", "steady"),
    ("pause mirror", "failover drain"),
    ("kill run", "failover commit"),
    ("restart dr", "failed over"),
    ("restart one broker of dr", "failback salvage"),
    ("kill mirror", "failed back"),
]


def experiment(tmp_path, title="One", text=TEXT):
    file = tmp_path / f"{title}.yaml"
    file.write_text(text % title)
    return load_experiment(file)


def drill(
    file, *, run="drill-a", outcome="ok", only=None, at=datetime(2026, 11, 20, 4, 3, tzinfo=UTC), verdict="passed"
):
    """A drill that injected every fault of the file, or those of `only`; the others weren't."""
    steps = [
        {
            "section": "method",
            "step": each.step,
            "line": each.line,
            "outcome": outcome if only is None or each.cell.fault in only else "skipped",
            "reason": None,
            "seconds": 0.1,
        }
        for each in planned_strikes(file)
    ]
    result = result_of(run, "kept", title=file.experiment.title, steps=steps, started_at=at, verdict=verdict)
    return KeptDrill(file, result)


def test_states_and_faults_are_those_of_the_code():
    assert STAGES["failover"] == tuple(step.stage for step in PATHS[Kind.FAILOVER])
    assert STAGES["failback"] == tuple(step.stage for step in PATHS[Kind.FAILBACK])
    assert len(STATES) == len(set(STATES)) == 3 + len(STAGES["failover"]) + len(STAGES["failback"])
    ends = {"resume", "heal_network", "renew_credentials", "renew_certificate", "correct_clock"}
    assert {cell.do for cell in CELLS} == set(FAULTS) - ends
    files = [each.stem for each in Path(faults.__file__).parent.glob("*/*.py") if each.stem != "__init__"]
    assert sorted(files) == sorted(FAULTS), "one file each"
    verified = {*verifier.NODE_FAULTS, *verifier.CLUSTER_FAULTS}
    assert verified == set(FAULTS), "a verifier of evidence knows all of them"
    assert len(CELLS) == len(set(CELLS))


def test_a_fault_strikes_in_the_state_in_which_it_is_injected(tmp_path):
    assert [(each.cell.fault, each.cell.state) for each in planned_strikes(experiment(tmp_path))] == STRUCK
    assert {each.cell for each in planned_strikes(experiment(tmp_path))} <= set(CELLS)


def test_a_restart_that_ends_a_fault_is_none_itself(tmp_path):
    """In a later state it is one: what was dead returns in the middle of something."""
    dead = TEXT.replace(
        "  - do: failover\n", "  - do: restart\n    node: primary\n  - do: kill\n    node: dr\n  - do: failover\n", 1
    )
    found = [(each.cell.fault, each.cell.state) for each in planned_strikes(experiment(tmp_path, text=dead))]
    assert [each for each in found if each not in STRUCK] == [("kill dr", "steady")]
    assert ("restart dr", "failed over") in found
    assert ("restart primary", "steady") not in found


def test_the_only_broker_is_the_cluster(tmp_path):
    file = experiment(tmp_path, text=TEXT.replace("lab: { brokers: 3 }", "lab: { brokers: 1 }"))
    assert {each.cell.on for each in planned_strikes(file)} == {"primary", "dr", "mirror", "run"}


@pytest.mark.parametrize("outcome", ["failed", "skipped", "unknown"])
def test_a_fault_that_was_not_injected_struck_nothing(tmp_path, outcome):
    assert struck_cells(drill(experiment(tmp_path), outcome=outcome)) == set()


def test_the_newest_drill_counts_with_its_verdict(tmp_path):
    file = experiment(tmp_path)
    old = drill(file, run="drill-old", verdict="failed")
    new = drill(file, run="drill-new", only={"kill run"}, at=datetime(2026, 11, 21, tzinfo=UTC))
    result = coverage([file], [new, old])
    cells = {(cell.fault, cell.state): cell for cell in result.cells}
    both, one = cells["kill run", "failover commit"], cells["restart dr", "failed over"]
    assert (both.struck, both.last.run, both.last.verdict) == (2, "drill-new", "passed")
    assert (one.struck, one.last.run, one.last.verdict) == (1, "drill-old", "failed")
    assert strikes_counted([new, old])[Cell("kill", "run", "failover commit")] == 2
    never = cells["kill dr", "steady"]
    assert (never.struck, never.last, never.experiments) == (0, None, []), "a rollback strikes nothing"


def test_cells_are_struck_planned_or_never(tmp_path):
    file = experiment(tmp_path)
    result = coverage([file], [drill(file, only={"kill run", "pause primary"})])
    assert (result.totals.struck, result.totals.planned) == (2, len(STRUCK) - 2)
    assert result.totals.struck + result.totals.planned + result.totals.never == result.totals.possible
    impossible = [cell for cell in result.cells if cell.impossible]
    assert {cell.on for cell in impossible} == {"run"}
    assert result.totals.possible == len(CELLS) - len(impossible)
    jsonschema.validate(json.loads(result.model_dump_json()), schemas()["drill.schema.json"])


def test_the_table_says_where_nothing_ever_struck(tmp_path):
    file = experiment(tmp_path)
    console = Console(width=250, file=io.StringIO())
    show_coverage(console, coverage([file], [drill(file, only={"kill run"})]))
    said = console.file.getvalue()
    rows = {line[: line.index("  ")]: line for line in said.splitlines() if line.startswith(("steady", "fail"))}
    assert list(rows) == list(STATES)
    assert "kill" in rows["failover commit"]
    assert "(kill)" not in rows["failover commit"]
    assert "(pause)" in rows["failover drain"]
    assert rows["failback close"].count("never") == len(TARGETS) + len([NETWORK]) + len(APPLICATIONS) + len(TOPICS)
    assert "kill run (failover commit)  1 time, last 2026-11-20T04:03:00.000Z passed  One" in said


def test_kept_drills_are_read_and_what_cannot_be_read_is_told(tmp_path):
    drills = Drills(tmp_path / "drills")
    assert read_kept(drills) == ([], [])
    file = experiment(tmp_path)
    good, bad = "drill-20261120T040300Z-00000a", "drill-20261120T040300Z-00000b"
    for run in (good, bad):
        drills.begin(run, file.path)
    drills.keep(drill(file, run=good).result)
    kept, unread = read_kept(drills)
    assert [each.result.run for each in kept] == [good]
    assert [each.name for each in unread] == [bad]
    assert "left no result" in unread[0].reason
    assert len(struck_cells(kept[0])) == len(STRUCK), "lines of the kept file are those of the result"
    drills.found.mkdir()
    (drills.found / "a.yaml").write_text(TEXT % "Found")
    (drills.found / "b.yaml").write_text("title: [")
    found, unread = read_found(drills)
    assert [each.experiment.title for each in found] == ["Found"]
    assert [each.name for each in unread] == ["b.yaml"]


def test_the_library_strikes_in_failover_and_failback():
    states = {strike.cell.state for file in library_files() for strike in planned_strikes(load_experiment(file))}
    assert {"steady", "failover drain", "failover commit", "failback reseed"} <= states


TOPICS_TEXT = """\
title: %s
hypothesis: h
lab: { secured: true, tls: true }
steady_state: { conditions: [{ condition: answers, cluster: dr }] }
method:
  - do: workload
  - do: mirror
  - do: disconnect
  - do: disconnect
  - { do: purge_topic, cluster: primary }
  - { do: expire_credentials, cluster: primary }
  - { do: renew_credentials, cluster: primary }
  - { do: expire_certificate, cluster: primary }
  - { do: renew_certificate, cluster: primary }
  - do: failover
    strikes:
      - at: switch
        faults:
          - { do: write_foreign, cluster: dr }
  - { do: delete_topic, cluster: primary }
checks: [duplicated]
"""


def test_what_is_done_to_a_topic_to_applications_or_to_connections_has_cells_of_its_own(tmp_path):
    file = experiment(tmp_path, text=TOPICS_TEXT)
    assert [(each.cell.fault, each.cell.on, each.cell.state) for each in planned_strikes(file)] == [
        ("disconnect mirror", "mirror", "steady"),
        ("disconnect mirror", "mirror", "steady"),
        ("purge topic on primary", "topic on primary", "steady"),
        ("expire credentials on primary", "applications on primary", "steady"),
        ("expire certificate on primary", "applications on primary", "steady"),
        ("write foreign on dr", "topic on dr", "failover switch"),
        ("delete topic on primary", "topic on primary", "failed over"),
    ]
    assert {each.cell for each in planned_strikes(file)} <= set(CELLS)
    assert {cell.on for cell in CELLS if cell.do == "disconnect"} == {"mirror"}
    assert struck_cells(drill(file)) == {each.cell for each in planned_strikes(file)}


SEVERAL = """\
title: several
hypothesis: h
lab:
  links:
    - { source: east, target: hub, policy: prefix }
    - { source: west, target: hub, policy: prefix }
steady_state: { conditions: [{ condition: answers, cluster: hub }] }
method:
  - { do: workload, link: east->hub, group: a }
  - { do: workload, link: west->hub, group: b }
  - { do: kill, node: west-1 }
  - { do: purge_topic, link: west->hub, cluster: hub }
  - { do: failover, to: hub, links: [west->hub] }
  - { do: pause, node: hub }
checks: [duplicated]
"""


def test_of_several_links_a_source_counts_as_primary_and_a_mere_target_as_dr(tmp_path):
    file = tmp_path / "several.yaml"
    file.write_text(SEVERAL)
    assert [strike.cell for strike in planned_strikes(load_experiment(file))] == [
        Cell("kill", "primary", "steady"),
        Cell("purge_topic", "topic on dr", "steady"),
        Cell("pause", "dr", "failed over"),
    ]
