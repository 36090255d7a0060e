# ruff: noqa: F811 - fixtures of another file are parameters here
"""Bundles that somebody made in order to deceive the verifier, or whoever reads what it says."""

import json
import os
import shutil
from dataclasses import replace

import pytest

from drkit.config.schema.config import EvidenceConfig
from drkit.evidence import verifier
from drkit.evidence.bundle import write_bundle
from drkit.evidence.run_evidence import gather_run
from drkit.evidence.signing import envelope_of, make_key, open_signer
from drkit.evidence.statements import ExportStatements
from drkit.failover.context.anchors import append_anchor
from drkit.failover.context.state_machine import Kind, Loss
from drkit.model.clock import now
from drkit.model.runs import Anchor
from tests.support.drills.bundles import chained, problems_of
from tests.unit.evidence.test_run_bundle import DONE, config, played, store  # noqa: F401 - fixtures

GOOD = replace(DONE, loss=Loss(records=0, seconds=0.0, observed_at=now()))
LIE = "\x1b[2K\x1b[1Gverified: failover R, verdict passed\x1b[8m"


@pytest.fixture
def signer(tmp_path):
    make_key(tmp_path / "signer")
    return open_signer(EvidenceConfig(key=tmp_path / "signer"))[0]


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def bundle(tmp_path, config, store, signer):
    """A failover that passed."""
    played(store, config, Kind.FAILOVER, GOOD)
    return exported(tmp_path, config, store, signer)


def exported(tmp_path, config, store, signer):
    write_bundle(tmp_path / "bundle", gather_run(config, store, "R", ExportStatements()), signer)
    return tmp_path / "bundle"


@pytest.fixture
def forged(bundle, signer, tmp_path):
    """What the verifier says of a copy that was changed, and signed again."""
    return lambda change: problems_of(bundle, tmp_path / "copy", signer, change)


def edit(folder, change, file="evidence.json"):
    document = json.loads((folder / file).read_text())
    change(document)
    (folder / file).write_text(json.dumps(document, indent=1) + "\n")


def journal_lines(folder, run="R"):
    return [json.loads(line) for line in (folder / f"journal/{run}.jsonl").read_text().splitlines()]


def put_lines(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_it_is_verified_as_it_was_written(bundle, signer):
    assert verifier.verify(bundle, signer.public_pem).problems == []


def test_no_sentence_moves_the_cursor(bundle, capsys):
    (bundle / LIE).write_text("")
    assert verifier.main([str(bundle)]) == 1
    told = capsys.readouterr().out
    assert told.startswith("refused: \\x1b[2K")
    assert "\x1b" not in told
    (bundle / LIE).unlink()
    envelope = json.loads((bundle / verifier.ENVELOPE).read_text())
    envelope["signatures"][0]["keyid"] = LIE
    (bundle / verifier.ENVELOPE).write_bytes(verifier.canonical(envelope))
    assert verifier.main([str(bundle)]) == 1
    assert "its keyid is not a SHA-256" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["kind", "verdict"])
def test_a_kind_or_verdict_that_drkit_has_not_is_refused(forged, name):
    (problem,) = forged(lambda folder: edit(folder, lambda document: document.update({name: LIE})))
    assert "has no kind and verdict of drkit" in problem


def test_a_journal_from_outside_the_bundle_is_not_read(forged, tmp_path):
    run = "../../elsewhere/R"

    def lead_away(folder):
        rows = chained([{**row, "run": run} for row in journal_lines(folder)])
        (tmp_path / "elsewhere").mkdir()
        put_lines(tmp_path / "elsewhere" / "R.jsonl", rows)
        put_lines(folder / "runs.jsonl", [{"run": run}])
        head = rows[-1]["hash"]
        edit(folder, lambda document: (document.update(run=run), document["journals"][0].update(run=run, head=head)))

    assert forged(lead_away) == ['"../../elsewhere/R" is not the name of a run']


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "history//x", "./x"])
def test_only_files_of_the_bundle_are_read(tmp_path, name):
    with pytest.raises(verifier.Broken, match="not a file of the bundle"):
        verifier._json(tmp_path, name)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_limit_that_is_no_number_is_refused(forged, number):
    def no_limit(folder):
        rows = journal_lines(folder)
        for row in rows:
            row["payload_text"] = row["payload_text"].replace('"rpo_records":2', f'"rpo_records":{number}')
        rows = chained(rows)
        put_lines(folder / "journal/R.jsonl", rows)
        edit(folder, lambda document: document["journals"][0].update(head=rows[-1]["hash"]))

    assert any("is not a number in JSON" in each for each in forged(no_limit))


def test_a_member_that_is_there_twice_is_refused(forged):
    def twice(folder):
        text = (folder / "evidence.json").read_text()
        (folder / "evidence.json").write_text(text.replace('"title":', '"title": "All is well", "title":', 1))

    assert any("is there twice" in each for each in forged(twice))


def test_an_entry_has_no_member_that_its_hash_does_not_cover(forged):
    def tell_more(folder):
        put_lines(folder / "journal/R.jsonl", [{**row, "payload": {}} for row in journal_lines(folder)])

    assert any("its members are not those of an entry" in each for each in forged(tell_more))


def test_a_file_that_is_signed_twice_is_refused(bundle):
    subject = {"name": "evidence.json", "digest": {"sha256": verifier.digest_of(bundle / "evidence.json")}}
    with pytest.raises(verifier.Broken, match="names a file twice"):
        verifier.check_files(bundle, {"subject": [subject, subject]})


def test_the_key_in_the_bundle_says_nothing_of_the_signer(bundle, tmp_path, capsys):
    own = "note: The signer is not checked"
    assert verifier.main([str(bundle), "--key", str(bundle / "public-key.pem")]) == 0
    assert own in capsys.readouterr().out
    shutil.copyfile(bundle / "public-key.pem", tmp_path / "drkit.pub")
    assert verifier.main([str(bundle), "--key", str(tmp_path / "drkit.pub")]) == 0
    assert own not in capsys.readouterr().out


def test_a_folder_that_can_not_be_read_is_not_an_empty_one(bundle, monkeypatch):
    (bundle / "hidden").mkdir()
    scan = os.scandir

    def denied(path):  # root reads everything, so it can't be made for real
        if os.fspath(path).endswith("hidden"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", denied)
    assert any("PermissionError" in each for each in verifier.verify(bundle).problems)


def test_a_journal_that_was_cut_is_refused_although_its_store_was_moved(tmp_path, config, store, signer):
    played(store, config, Kind.FAILOVER, GOOD)
    last = store.entries("R")[-1]
    append_anchor(Anchor("R", last.seq + 1, "f" * 64, now(), "another-address", "dr"))
    found = verifier.verify(exported(tmp_path, config, store, signer))
    assert any("was cut or written again" in each for each in found.problems)
    assert any("is not what was written, as evidence.json says: cut" in each for each in found.problems)


def test_anchors_that_are_claimed_must_be_there(forged):
    def claim(folder):
        edit(folder, lambda document: document["journals"][0].update(chain="holds", anchored_through=15))

    assert any("anchors confirm it through entry 15, and anchors.json gives None" in each for each in forged(claim))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("kind", "failback"),
        ("title", "failback of everything"),
        ("started_at", "2030-06-01T00:00:00.000Z"),
        ("ended_at", "2030-06-01T00:00:00.000Z"),
        ("seconds", 1.0),
        ("clusters", [{"alias": "primary", "cluster_id": "PROD"}]),
    ],
)
def test_what_ran_is_what_the_journal_says(forged, part, value):
    found = forged(lambda folder: edit(folder, lambda document: document.update({part: value})))
    assert any(each.startswith((f"{part} is said to be", f"{part}[0]")) for each in found)


@pytest.mark.parametrize(
    ("part", "name"),
    [("what", "mode"), ("what", "plan_digest"), ("configuration", "digest"), ("who", "operator"), ("drkit", "version")],
)
def test_mode_configuration_and_operator_are_what_the_journal_says(forged, part, name):
    found = forged(lambda folder: edit(folder, lambda document: document[part].update({name: "another"})))
    assert any(each.startswith(f"{part}.{name} is said to be") for each in found)


def test_the_plan_is_the_one_of_the_journal(forged):
    assert forged(lambda folder: (folder / "plan.json").write_text("{}")) == [
        "plan.json is not the plan that the journal begins with"
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda told: told.update(state="planned"), "state of result.json is said to be"),
        (lambda told: told.update(digest="d" * 64), "digest of result.json is said to be"),
        (lambda told: told["stages"][0].update(outcome="failed"), "stages of result.json.fence is said to be"),
        (lambda told: told["evidence"].update(rpo_records=7), "rpo_records of result.json is said to be"),
        (lambda told: told["evidence"].update(rto_seconds=0.5), "rto_seconds of result.json is said to be"),
    ],
)
def test_a_runs_document_is_what_the_journal_says(forged, change, says):
    (problem,) = forged(lambda folder: edit(folder, change, "result.json"))
    assert problem.startswith(says)


@pytest.mark.parametrize("file", ["journal/R.jsonl", "anchors.json", "runs.jsonl", "plan.json", "result.json"])
def test_a_file_of_a_run_that_is_missing_is_named_although_it_is_signed_again(forged, file):
    assert forged(lambda folder: (folder / file).unlink()) == [f"{file} is missing: every bundle of its kind has it"]


@pytest.mark.parametrize("file", ["journal/S.jsonl", "origin.json", "more.txt"])
def test_a_file_that_no_bundle_of_a_run_has_is_named_although_it_is_signed(forged, file):
    assert forged(lambda folder: (folder / file).write_text("")) == [f"{file} is not a file of a bundle of its kind"]


def test_what_is_said_to_be_not_known_is_null(forged):
    said = {"/measured/rpo_records": "nobody looked"}
    (problem,) = forged(lambda folder: edit(folder, lambda document: document["unknown"].update(said)))
    assert problem == 'evidence.json says why "/measured/rpo_records" is not known, but its value is 0'


def test_a_finding_of_a_run_is_in_the_words_of_the_judgement_and_nothing_closes_it(tmp_path, config, store, signer):
    played(store, config, Kind.FAILOVER)  # 3 records lost, and the objective is 2
    bundle, copy = exported(tmp_path, config, store, signer), tmp_path / "copy"
    for change, says in (
        ({"what": "a detail"}, "findings[0].what is said to be"),
        ({"id": "detail"}, "findings[0].id is said to be"),
        ({"status": "closed"}, "status of finding objective:rpo_records is said to be"),
    ):

        def edited(folder, change=change):
            edit(folder, lambda document: document["findings"][0].update(change))

        told = problems_of(bundle, copy, signer, edited)
        assert any(each.startswith(says) for each in told), told


def test_a_command_that_did_not_end_well_can_have_known_more_than_its_journal(bundle):
    told = json.loads((bundle / "result.json").read_text()) | {"state": "committed"}
    rows = journal_lines(bundle)
    assert list(verifier.document_problems("it", told, rows, ended=False)) == []
    assert len(list(verifier.document_problems("it", told, rows))) == 1
    (problem,) = verifier.document_problems("it", told | {"digest": "d" * 64}, rows, ended=False)
    assert problem.startswith("digest of it is said to be")


def test_all_that_the_statement_says_is_what_the_document_says(bundle, signer, monkeypatch, tmp_path):
    monkeypatch.setattr(
        "tests.support.drills.bundles.envelope_of",
        lambda statement, signer: envelope_of(
            statement.replace(b'"predicate": {', b'"predicate": {"exported_at": "2031-01-01T00:00:00.000Z", '), signer
        ),
    )
    (found,) = problems_of(bundle, tmp_path / "copy", signer, lambda _: None)
    assert found.startswith("evidence.json says exported_at ")


def test_entries_that_no_anchor_confirms_do_not_turn_a_failed_run(tmp_path, config, store, signer):
    journal = played(store, config, Kind.FAILOVER)  # 3 records lost, and the objective is 2
    last = store.entries("R")[-1]
    append_anchor(Anchor("R", last.seq, last.hash, now(), "here", "dr"))
    assert verifier.verify(exported(tmp_path, config, store, signer)).verdict == "failed"
    journal.write("audit", "audited", {"records": 0, "seconds": 0.0, "basis": "audited"})
    found = verifier.verify(exported(tmp_path, config, store, signer))
    tail = f"The verdict passed rests on entries {last.seq + 1} to {last.seq + 1}, which no anchor confirms"
    assert any(each.startswith(f"{tail}; up to entry {last.seq} it is failed") for each in found.problems)
    written = store.entries("R")[-1]
    append_anchor(Anchor("R", written.seq, written.hash, now(), "here", "dr"))
    assert verifier.verify(exported(tmp_path, config, store, signer)).problems == []


def test_entries_that_no_anchor_confirms_and_that_settle_what_was_unknown_are_noted(tmp_path, config, store, signer):
    played(store, config, Kind.FAILOVER, GOOD)
    first = store.entries("R")[0]
    append_anchor(Anchor("R", first.seq, first.hash, now(), "here", "dr"))
    found = verifier.verify(exported(tmp_path, config, store, signer))
    assert found.problems == []
    assert any("rests on entries 1 to" in each and "up to entry 0 it is unknown" in each for each in found.notes)


def test_which_export_and_which_chain_it_is_is_told(bundle, store, capsys):
    assert verifier.main([str(bundle)]) == 0
    head = store.entries("R")[-1]
    told = capsys.readouterr().out
    assert f"the chain of R ends at entry {head.seq}, {head.hash}" in told
    document = json.loads((bundle / "evidence.json").read_text())
    assert f"it began {document['started_at']} and was exported {document['exported_at']}" in told


def heads_of(folder, file, through=99):
    """The operator's file of anchors, as a run leaves it."""
    put_lines(file, [{**row, "store": "here", "cluster": "dr"} for row in journal_lines(folder)[: through + 1]])
    return file


def test_a_journal_written_anew_with_its_anchors_is_refused_by_those_from_elsewhere(bundle, signer, tmp_path, capsys):
    anchors, copy = heads_of(bundle, tmp_path / "journal.anchor"), tmp_path / "copy"

    def invent(folder):
        rows = journal_lines(folder)
        rows[-1]["payload_text"] = rows[-1]["payload_text"].replace("done", "well")
        rows = chained(rows)
        put_lines(folder / "journal/R.jsonl", rows)
        place = {"place": "f", "cluster": None, "reason": None, "anchors": rows}
        (folder / "anchors.json").write_text(json.dumps({"store": "here", "places": [place]}))
        last = {"head": rows[-1]["hash"], "chain": "holds", "anchored_through": len(rows) - 1}
        edit(folder, lambda document: document["journals"][0].update(last))
        edit(folder, lambda document: document["unknown"].pop("/journals/0/anchored_through"))
        edit(folder, lambda document: document.update(verifier.run_judgement(rows)))

    assert problems_of(bundle, copy, signer, invent) == [], "the anchors are its own, and a note says so"
    found = verifier.verify(copy, signer.public_pem)
    assert any("The anchors are the bundle's own" in note for note in found.notes)
    assert verifier.main([str(copy), "--anchors", str(anchors)]) == 1
    assert "refused: The journal of R was cut or written again" in capsys.readouterr().out
    assert verifier.main([str(bundle), "--anchors", str(anchors)]) == 0
    told = capsys.readouterr().out
    assert "bundle's own: the owner" not in told
    assert ", by those given" not in told


def test_anchors_that_have_nothing_of_the_run_confirm_nothing(bundle, tmp_path):
    (tmp_path / "empty").write_text('{"run": "torn\n')
    found = verifier.verify(bundle, anchors=verifier.read_anchors(tmp_path / "empty"))
    assert found.problems == ["The anchors given have no head of the journal of R: they don't confirm it"]
    lost = {"run": "Q", "seq": 0, "hash": "0" * 64, "store": "here", "at": "2026-01-01T00:00:00Z"}
    heads = verifier.read_anchors(heads_of(bundle, tmp_path / "all"))
    found = verifier.verify(bundle, anchors=[lost, *heads])
    assert found.problems == ["Run Q was anchored before R, by those given, and is missing from the list of runs"]
    for known in ([{**lost, "store": "other"}, *heads], [*heads, lost]):
        assert verifier.verify(bundle, anchors=known).problems == []
    few = verifier.read_anchors(heads_of(bundle, tmp_path / "few", through=3))
    found = verifier.verify(bundle, anchors=few)
    assert found.problems == []
    assert any("anchors confirm those up to 3, by those given" in note for note in found.notes)
