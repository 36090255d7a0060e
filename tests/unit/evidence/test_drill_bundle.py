"""The bundle of a drill: verdicts follow from the raw histories, and a change of anything is refused."""

import json
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.config.schema.config import EvidenceConfig
from drkit.drill.judge.result import SteadyStateResult, StepResult
from drkit.drill.results.archive import Drills
from drkit.drill.results.recording import CHAIN, begin_in_chain, read_chain
from drkit.evidence import verifier
from drkit.evidence.bundle import write_bundle
from drkit.evidence.drill_evidence import gather_drill
from drkit.evidence.signing import make_key, open_signer
from drkit.evidence.statements import ExportStatements, StatedFinding
from drkit.model.errors import ConfigError, Refused
from tests.support.drills.bundles import ROOT, chained, change_a_byte, document_of, problems_of
from tests.support.drills.kept_drills import AT, STRUCK_AFTER, Ends, a_history, brought_back, keep, name


@pytest.fixture
def drills(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "drills").mkdir()
    return Drills(tmp_path / "drills")


@pytest.fixture
def signer(tmp_path):
    make_key(tmp_path / "signer")
    return open_signer(EvidenceConfig(key=tmp_path / "signer"))[0]


def test_a_drill_that_passed_is_verified_and_any_change_is_refused(drills, signer, tmp_path):
    run = keep(drills, name(1), a_history())
    out = tmp_path / "bundle"
    write_bundle(out, gather_drill(drills, run, ExportStatements(witness="Ada")), signer)
    assert verifier.verify(out, signer.public_pem).problems == []
    document = document_of(out)
    assert (document["verdict"], document["measured"]["rpo_records"]) == ("passed", 0)
    assert document["timeline"]["faults"] == [{"what": "kill primary", "seconds": 15.0, "outcome": "ok"}]
    assert document["timeline"]["series"][0]["points"][0] == [0, 1]
    assert document["unknown"]["/trend"].startswith("it is the first drill")
    for path in sorted(path for path in out.rglob("*") if path.is_file() and path.stat().st_size):
        size = path.stat().st_size
        for number in range(0, size, max(1, size // 40)):
            with change_a_byte(path, number / size) as changed:
                assert verifier.verify(out, None).problems, changed
    for path in sorted(out.rglob("*.json*")):
        content = path.read_bytes()
        path.unlink()
        assert verifier.verify(out, None).problems, path
        path.write_bytes(content)
    (out / "more.txt").write_text("")
    assert verifier.verify(out, None).problems == ["more.txt is not part of what was signed"]


def of_another_link(history):
    """The same records, from west to primary, where no client moved."""
    attempts = tuple(replace(each, cluster="west") for each in history.attempts)
    polls = tuple(replace(each, cluster="west") for each in history.polls if each.cluster == "primary")
    return replace(history, source="west", target="primary", attempts=attempts, polls=polls, positions=())


def test_a_drill_of_several_links_is_judged_and_verified_link_by_link(drills, signer, tmp_path):
    """Records are lost on one of them alone; the checks of moved clients are made of the one whose clients moved."""
    run = keep(drills, name(1), a_history(), others=[of_another_link(a_history(lose=2))])
    out, copy = tmp_path / "bundle", tmp_path / "copy"
    write_bundle(out, gather_drill(drills, run, ExportStatements()), signer)
    assert verifier.verify(out, signer.public_pem).problems == []
    document = document_of(out)
    assert [(each["link"], each["check"], each["outcome"]) for each in document["checks"]] == [
        ("primary->dr", "lost", "passed"),
        ("primary->dr", "duplicated", "passed"),
        ("primary->dr", "skipped_by_group", "passed"),
        ("west->primary", "lost", "failed"),
        ("west->primary", "duplicated", "passed"),
    ]
    assert document["reasons"] == ["lost of west->primary: 2 anomalies"]
    assert "check:lost of west->primary" in {each["id"] for each in document["findings"]}
    measured = {each["link"]: each["measured"] for each in document["links"]}
    assert [each["rpo_records"] for each in (*measured.values(), document["measured"])] == [0, 2, 2]
    assert [each["rto_seconds"] for each in (*measured.values(), document["measured"])] == [5.0, None, 5.0]
    assert document["unknown"]["/links/1/measured/rto_seconds"] == "its clients were not moved after a failover"
    assert [each["target_topic"] for each in document["links"]] == ["drill.orders", "west.drill.orders"]
    assert "the mirror's lag of west->primary" in {each["name"] for each in document["timeline"]["series"]}

    def hidden(folder):
        history = json.loads((folder / "history" / "history.json").read_text())
        history["links"].pop()
        (folder / "history" / "history.json").write_text(json.dumps(history))

    def moved(folder):
        history = json.loads((folder / "history" / "history.json").read_text())
        history["links"][1]["moved"] = True
        (folder / "history" / "history.json").write_text(json.dumps(history))

    for change, says in ((hidden, "no link of history/history.json"), (moved, "says moved of west->primary")):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(out, copy)
        change(copy)
        with pytest.raises(verifier.Broken) as caught:
            verifier.drill_document(copy, run, [json.loads(row["payload_text"]) for row in rows_of(copy)])
        assert any(says in str(each) for each in caught.value.args), caught.value.args


def test_a_link_that_was_brought_back_is_judged_on_both_clusters_and_nobody_can_leave_one_out(drills, signer, tmp_path):
    """The second reading is in the bundle: its records, and when the failback ended, as its step says."""
    whole, holed = (keep(drills, name(n), brought_back(a_history(), without=3 * n), number=n) for n in range(2))
    out, copy = tmp_path / "bundle", tmp_path / "copy"
    write_bundle(tmp_path / "whole", gather_drill(drills, whole, ExportStatements()), signer)
    assert verifier.verify(tmp_path / "whole", signer.public_pem).problems == []
    write_bundle(out, gather_drill(drills, holed, ExportStatements()), signer)
    assert verifier.verify(out, signer.public_pem).problems == []
    document = document_of(out)
    assert (document["verdict"], document["measured"]["rpo_records"]) == ("failed", 3)
    lost = next(check for check in document["checks"] if check["check"] == "lost")
    assert [each["record"] for each in lost["witnesses"]] == ["k#17", "k#18", "k#19"]
    rows = [json.loads(line) for line in (out / "history" / "landed.jsonl").read_text().splitlines()]
    assert Counter(row[1] for row in rows) == {"dr": 20, "primary": 17}

    def of_history(change):
        def changed(folder):
            about = json.loads((folder / "history" / "history.json").read_text())
            change(about["links"][0])
            (folder / "history" / "history.json").write_text(json.dumps(about))

        return changed

    def not_read(folder):
        of_history(lambda link: link.update(returned=None))(folder)
        kept = [row for row in rows if row[1] == "dr"]
        (folder / "history" / "landed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))

    earlier = of_history(lambda link: link["returned"].update(at=link["returned"]["at"] - 5))
    hidden = of_history(lambda link: link.update(returned=None))
    for change, says in (
        (not_read, "says returned at None, which is not the end of a failback of it"),
        (earlier, "which is not the end of a failback of it in result.json"),
        (hidden, "has records of primary->dr on a cluster that was not read"),
    ):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(out, copy)
        change(copy)
        with pytest.raises(verifier.Broken) as caught:
            verifier.drill_document(copy, holed, [json.loads(row["payload_text"]) for row in rows_of(copy)])
        assert any(says in str(each) for each in caught.value.args), caught.value.args


def rows_of(bundle):
    return [json.loads(line) for line in (bundle / "drills.jsonl").read_text().splitlines()]


def test_a_failed_drill_shows_its_witnesses_and_can_not_be_made_a_passed_one(drills, signer, tmp_path):
    run = keep(drills, name(1), a_history(lose=2))
    out, copy = tmp_path / "bundle", tmp_path / "copy"
    stated = StatedFinding(id="check:lost", owner="Grace", due="2026-12-01", retest=name(2))
    write_bundle(out, gather_drill(drills, run, ExportStatements(findings=(stated,))), signer)
    document = document_of(out)
    lost = next(check for check in document["checks"] if check["check"] == "lost")
    assert (document["verdict"], lost["outcome"], lost["anomalies"]) == ("failed", "failed", 2)
    assert lost["witnesses"][0] == {
        "cluster": "primary",
        "partition": 0,
        "offset": 5,
        "record": "k#5",
        "text": "acknowledged by primary and missing on dr, which has records of that partition up to source offset 19",
    }
    finding = next(each for each in document["findings"] if each["id"] == "check:lost")
    assert (finding["owner"], finding["due"], finding["status"]) == ("Grace", "2026-12-01", "open")

    def swap(folder):
        text = (folder / "evidence.json").read_text().replace('"verdict": "failed"', '"verdict": "passed"')
        (folder / "evidence.json").write_text(text)

    assert any("verdict is said to be" in each for each in problems_of(out, copy, signer, swap))

    def swap_all(folder):
        swap(folder)
        for file in ("evidence.json", "result.json"):
            text = (folder / file).read_text().replace('"outcome": "failed"', '"outcome": "passed"')
            (folder / file).write_text(text.replace('"verdict": "failed"', '"verdict": "passed"'))

    assert any("the raw histories give" in each for each in problems_of(out, copy, signer, swap_all))

    def forge_history(folder):
        landed = folder / "history" / "landed.jsonl"
        landed.write_text(landed.read_text() + '[0,18,"k",5,7]\n[0,19,"k",6,7]\n')

    assert any("is not what the chain of drills says" in each for each in problems_of(out, copy, signer, forge_history))
    keep(drills, name(2), a_history())
    again = write_bundle(out, gather_drill(drills, run, ExportStatements(findings=(stated,))), signer)
    assert again.changed
    assert [each["status"] for each in document_of(out)["findings"] if each["id"] == "check:lost"] == ["closed"]


def test_a_drill_that_is_missing_from_the_chain_is_noticed(drills, signer, tmp_path):
    for number in range(3):
        keep(drills, name(number), a_history(lose=number % 2), number=number)
    out, copy = tmp_path / "bundle", tmp_path / "copy"
    write_bundle(out, gather_drill(drills, name(2), ExportStatements()), signer)
    assert verifier.verify(out).problems == []

    def lose_the_failed_one(folder):
        lines = (folder / "drills.jsonl").read_text().splitlines(keepends=True)
        (folder / "drills.jsonl").write_text(lines[0] + lines[2])

    assert any("a drill is missing" in each for each in problems_of(out, copy, signer, lose_the_failed_one))
    shutil.rmtree(drills.path / name(1))
    write_bundle(out, gather_drill(drills, name(2), ExportStatements()), signer)
    assert document_of(out)["drills"]["not_kept_any_more"] == [name(1)], "it can go, but not unseen"
    chain = drills.path / CHAIN
    chain.write_text("".join(chain.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(Refused, match="not in the chain"):
        gather_drill(drills, name(2), ExportStatements())
    keep(drills, name(3), a_history(), number=3)  # a new end: the anchored one isn't it
    other = tmp_path / "other"
    write_bundle(other, gather_drill(drills, name(3), ExportStatements()), signer)
    assert any("was cut or written again" in each for each in verifier.verify(other).problems)


def test_entering_a_drill_twice_changes_nothing(drills):
    keep(drills, name(1), a_history())
    drills.keep(drills.result(name(1)))
    assert len(read_chain(drills.path)) == 1


def test_a_trend_marks_what_got_worse(drills, signer, tmp_path):
    for number in range(2):
        keep(drills, name(number), a_history(), number=number)
    keep(drills, name(2), a_history(lose=1), number=2)
    write_bundle(tmp_path / "bundle", gather_drill(drills, name(2), ExportStatements()), signer)
    trend = document_of(tmp_path / "bundle")["trend"]
    assert [bool(each["regressions"]) for each in trend["drills"]] == [False, False, True]
    assert trend["drills"][2]["regressions"][0] == f"the verdict is failed, but {name(1)} passed"
    assert trend["drills"][2]["regressions"][1] == "1 record lost, at most 0 in earlier drills that passed"


def test_the_same_again_changes_nothing_and_another_run_is_refused(drills, signer, tmp_path):
    run, out = keep(drills, name(1), a_history()), tmp_path / "bundle"
    assert write_bundle(out, gather_drill(drills, run, ExportStatements()), signer).changed
    assert not write_bundle(out, gather_drill(drills, run, ExportStatements()), signer).changed
    assert write_bundle(out, gather_drill(drills, run, ExportStatements(why="the yearly one")), signer).changed
    other = keep(drills, name(2), a_history())
    with pytest.raises(Refused, match="is not empty"):
        write_bundle(out, gather_drill(drills, other, ExportStatements()), signer)
    (out / "history" / "note").write_text("mine")
    with pytest.raises(Refused, match="holds history/note"):
        write_bundle(out, gather_drill(drills, run, ExportStatements()), signer)


def test_a_finding_that_there_is_not_is_refused(drills):
    run = keep(drills, name(1), a_history())
    with pytest.raises(ConfigError, match="no finding 'check:lost'"):
        gather_drill(drills, run, ExportStatements(findings=(StatedFinding(id="check:lost"),)))


def test_the_verb_and_the_tool_say_the_same(drills, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # no drkit.toml here: a drill's evidence needs none
    run, out = keep(drills, name(1), a_history()), tmp_path / "bundle"
    runner, app = CliRunner(), application(["evidence"])
    export = ["evidence", "export", run, "--out", str(out), "--drills", str(drills.path), "--output", "json"]
    exported = runner.invoke(app, export)
    assert exported.exit_code == 0, exported.output
    assert "A key was made" in exported.stderr
    verified = runner.invoke(app, ["evidence", "verify", str(out), "--output", "json"])
    assert verified.exit_code == 0
    assert verifier.main([str(out), "--key", str(tmp_path / "state" / "drkit" / "evidence.key.pub")]) == 0
    assert capsys.readouterr().out.startswith("verified: drill ")
    (out / "report.html").write_text("nothing happened")
    refused = runner.invoke(app, ["evidence", "verify", str(out), "--output", "json"])
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["problems"] == [
        "report.html was changed after it was signed: its SHA-256 differs"
    ]
    assert verifier.main([str(out)]) == 1
    assert runner.invoke(app, ["evidence", "verify", str(tmp_path / "none")]).exit_code == 2
    mended = runner.invoke(app, export)  # of the same run: it is written again
    assert (mended.exit_code, json.loads(mended.stdout)["changed"]) == (0, True)
    assert (ROOT / "drkit" / "evidence" / "verifier.py").resolve() == ROOT / "tools" / "verify_evidence.py"


def test_a_chain_that_was_copied_and_cut_is_noted(drills, signer, tmp_path):
    for number in range(3):
        keep(drills, name(number), a_history(lose=2 * (number == 1)), number=number)
    moved = Drills(tmp_path / "moved")
    shutil.copytree(drills.path, moved.path)
    rows = [json.loads(line) for line in (drills.path / CHAIN).read_text().splitlines()]
    kept = chained([rows[0], rows[2]])
    (moved.path / CHAIN).write_text("".join(json.dumps(row) + "\n" for row in kept))
    write_bundle(tmp_path / "bundle", gather_drill(moved, name(2), ExportStatements()), signer)
    notes = verifier.verify(tmp_path / "bundle").notes
    assert "Of the 2 entries of drills, anchors confirm those up to 0" in notes
    assert any("was copied from another" in each and "lacks 2 of the drills" in each for each in notes)


def test_a_chain_that_was_restarted_is_noted(drills, signer, tmp_path, monkeypatch):
    keep(drills, name(0), a_history(lose=2))
    other = Drills(tmp_path / "restarted")
    other.path.mkdir()
    keep(other, name(1), a_history())
    write_bundle(tmp_path / "bundle", gather_drill(other, name(1), ExportStatements()), signer)
    assert any("anchored 1 other chains of drills" in each for each in verifier.verify(tmp_path / "bundle").notes)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    write_bundle(tmp_path / "bundle", gather_drill(other, name(1), ExportStatements()), signer)
    assert "Of the 1 entries of drills, anchors confirm none" in verifier.verify(tmp_path / "bundle").notes


def test_anchors_from_elsewhere_confirm_the_chain_of_drills(drills, signer, tmp_path):
    for number in range(2):
        keep(drills, name(number), a_history(), number=number)
    out, copy = tmp_path / "bundle", tmp_path / "copy"
    write_bundle(out, gather_drill(drills, name(1), ExportStatements()), signer)
    anchors = verifier.read_anchors(tmp_path / "state" / "drkit" / "journal.anchor")
    assert verifier.verify(out, anchors=anchors).problems == []

    def restart(folder):
        rows = chained([json.loads(line) for line in (folder / "drills.jsonl").read_text().splitlines()][1:])
        (folder / "drills.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "drill-anchors.json").write_text(json.dumps({"drills": rows, "other_drills": {}}))
        document = json.loads((folder / "evidence.json").read_text())
        document["drills"] |= {"entries": 1, "head": rows[0]["hash"], "anchored": 1, "anchored_through": 0}
        document["trend"] = None
        (folder / "evidence.json").write_text(json.dumps(document))

    assert problems_of(out, copy, signer, restart) == []
    assert verifier.verify(copy, anchors=anchors).problems == [
        "The anchors given have no head of the chain of drills: they don't confirm it"
    ]


def test_a_drill_that_was_killed_is_named(drills, signer, tmp_path):
    keep(drills, name(0), a_history())
    begin_in_chain(drills.path, name(1), "The primary is lost", AT)
    begin_in_chain(drills.path, name(2), "The primary is lost", AT)
    keep(drills, name(2), a_history(), number=2)
    out = tmp_path / "bundle"
    write_bundle(out, gather_drill(drills, name(2), ExportStatements()), signer)
    found = verifier.verify(out)
    assert found.problems == []
    assert f"Drills that began and left no result, killed or still running: {name(1)}" in found.notes

    def forget(folder):
        document = json.loads((folder / "evidence.json").read_text())
        document["drills"] |= {"without_result": []}
        (folder / "evidence.json").write_text(json.dumps(document))

    assert any("without_result" in each for each in problems_of(out, tmp_path / "copy", signer, forget))


def test_a_passed_drill_under_looser_objectives_closes_no_finding(drills):
    for number, (lose, rto) in enumerate([(2, 60.0), (0, 61.0), (0, 60.0)]):
        keep(drills, name(number), a_history(lose), rto=rto, number=number)
    chain = [json.loads(line) for line in (drills.path / CHAIN).read_text().splitlines()]
    bodies = verifier.kept_drills(chain)
    for each in bodies:
        each["files"]["experiment.yaml"] = "the same: what differs came from the configuration"
    assert [*verifier.retests(name(0), bodies)] == [name(2)]
    del bodies[2]["objectives"]["rto_seconds"]
    assert [*verifier.retests(name(0), bodies)] == []


def test_an_older_drill_or_one_of_another_experiment_closes_no_finding(drills):
    keep(drills, name(0), a_history(), number=0)
    keep(drills, name(1), a_history(lose=2), number=1)
    keep(drills, name(2), a_history(), number=2)
    other = name(3)
    chain = drills.path / CHAIN
    keep(drills, other, a_history(), number=3)
    rows = [json.loads(line) for line in chain.read_text().splitlines()]
    rows[-1]["payload_text"] = rows[-1]["payload_text"].replace("The primary is lost", "Something else")
    chain.write_text("".join(json.dumps(row) + "\n" for row in chained(rows)))
    for retest, status in ((name(0), "open"), (name(2), "closed"), (other, "open")):
        stated = StatedFinding(id="check:lost", retest=retest)
        found = gather_drill(drills, name(1), ExportStatements(findings=(stated,))).document["findings"]
        assert [each["status"] for each in found if each["id"] == "check:lost"] == [status], retest


def a_step(section, step, line, outcome, after=None, seconds=0.0):
    return StepResult(
        section=section,
        step=step,
        line=line,
        outcome=outcome,
        reason="a step before it did not succeed" if outcome == "skipped" else "it hung",
        seconds=seconds,
        started_after_seconds=after,
    )


NOT_ASKED = SteadyStateResult(reached=None, reason="the drill ended before it was checked", seconds=0.0)
NOT_REACHED = SteadyStateResult(reached=False, reason="after 60 s: 0 records read from primary", seconds=60.0)
REACHED = SteadyStateResult(reached=True, reason="1 record read from primary", seconds=1.0)
ROLLBACK = a_step("rollbacks", "restart primary", 19, "ok", 25.0, 2.0)
EARLY = {
    "the lab did not come up": (Ends(0, NOT_ASKED, interrupted="the lab: no Java", disaster=None), "unknown"),
    "interrupted": (
        Ends(2, REACHED, (a_step("method", "failover to dr", 10, "unknown", 17.0, 3.0), ROLLBACK), "by a signal"),
        "unknown",
    ),
    "interrupted while it rolled back": (
        Ends(
            4, REACHED, (a_step("rollbacks", "restart primary", 19, "unknown", 25.0, 1.0),), "by a signal", moved=True
        ),
        "unknown",
    ),
    "no steady state": (
        Ends(
            1,
            NOT_REACHED,
            (
                a_step("method", "kill primary", 8, "skipped"),
                a_step("method", "failover to dr", 10, "skipped"),
                a_step("method", "move clients to dr", 12, "skipped"),
                ROLLBACK,
            ),
            disaster=25.5,
        ),
        "unknown",
    ),
    "a failover that failed": (
        Ends(
            2,
            REACHED,
            (
                a_step("method", "failover to dr", 10, "failed", 17.0, 3.0),
                a_step("method", "move clients to dr", 12, "skipped"),
                ROLLBACK,
            ),
        ),
        "failed",
    ),
}


@pytest.mark.parametrize("case", EARLY)
def test_a_drill_that_did_not_come_to_its_end_has_evidence_too(drills, signer, tmp_path, case):
    ends, verdict = EARLY[case]
    run = keep(drills, name(1), a_history(), ends=ends)
    write_bundle(tmp_path / "bundle", gather_drill(drills, run, ExportStatements()), signer)
    assert verifier.verify(tmp_path / "bundle", signer.public_pem).problems == []
    document = document_of(tmp_path / "bundle")
    assert (document["verdict"], document["steps"] == []) == (verdict, ends.steps == 0)


STRIKES = """
    resumes: 1
    strikes:
      - at: drain
        faults:
          - { do: pause, node: dr }
          - { do: delete_topic, cluster: primary }
      - at: commit
        faults:
          - { do: kill, node: run }"""


def test_faults_at_stages_are_in_the_timeline(drills, signer, tmp_path):
    run = keep(drills, name(1), a_history(), strikes=STRIKES)
    write_bundle(tmp_path / "bundle", gather_drill(drills, run, ExportStatements()), signer)
    assert verifier.verify(tmp_path / "bundle", signer.public_pem).problems == []
    timeline = document_of(tmp_path / "bundle")["timeline"]
    struck = [
        "pause dr at failover drain",
        "delete topic on primary at failover drain",
        "kill run at failover commit",
    ]
    assert [each["what"] for each in timeline["events"] if each["fault"]] == ["kill primary", *struck]
    assert [each["what"] for each in timeline["events"]][2:7] == ["failover to dr", *struck, "move clients to dr"]
    assert [(each["what"], each["seconds"]) for each in timeline["faults"]] == [
        ("kill primary", 15.0),
        *((each, STRUCK_AFTER) for each in struck),
    ]
    assert all(each in (tmp_path / "bundle" / "report.html").read_text() for each in struck)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda strikes: strikes.clear(), "The faults at stages of failover to dr (line 10) of result.json are"),
        (
            lambda strikes: strikes[2].update(step="kill run at failover fence"),
            "The faults at stages of failover to dr",
        ),
        (lambda strikes: strikes[1].update(outcome="unknown"), "is ok, although not every fault at its stages struck"),
        (lambda strikes: strikes[0].update(started_after_seconds=16.0), "struck outside of its step"),
        (lambda strikes: strikes[0].update(seconds=4.0), "struck outside of its step"),
    ],
)
def test_a_fault_at_a_stage_that_was_not_there_is_noticed(drills, change, says):
    folder = drills.path / keep(drills, name(1), a_history(), strikes=STRIKES)
    assert list(verifier.Drill(folder).problems()) == []
    result = json.loads((folder / "result.json").read_text())
    change(result["steps"][2]["strikes"])
    (folder / "result.json").write_text(json.dumps(result))
    assert any(says in each for each in verifier.Drill(folder).problems())
