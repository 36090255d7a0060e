"""A drill's bundle, changed in one place and signed again: every file, every field; each sentence names the place."""

import fnmatch
import json
import re
import shutil
from dataclasses import replace

import pytest

from drkit.config import load_config
from drkit.config.schema.config import EvidenceConfig
from drkit.drill.results.archive import Drills
from drkit.drill.results.recording import CHAINED_FILES
from drkit.evidence import verifier
from drkit.evidence.bundle import write_bundle
from drkit.evidence.drill_evidence import gather_drill
from drkit.evidence.signing import make_key, open_signer
from drkit.evidence.statements import ExportStatements, StatedFinding
from drkit.failover.context.state_machine import Kind
from drkit.failover.journal.files import anchor_document, entry_document, json_lines
from drkit.failover.journal.run_record import load_run
from drkit.failover.run.run_document import run_document
from drkit.failover.run.runner import RunResult
from drkit.model.errors import DrkitError, Refused
from drkit.model.runs import Anchor
from drkit.store import open_store
from tests.support.drills.bundles import ROOT, chained, problems_of
from tests.support.drills.kept_drills import InnerRun, a_history, keep, name
from tests.unit.evidence.test_run_bundle import DONE, played

JOURNAL = "journal/R.jsonl"
KEPT = (*CHAINED_FILES, JOURNAL)
ROWS = tuple(each for each in (*KEPT, "drills.jsonl") if each.endswith(".jsonl"))

SIGNATURE_ALONE = (
    "exported_at",
    "drkit.exported_with",
    "runbook.*",
    "who.witness",
    "who.exported_by",
    "why.*",
    "findings[*].owner",
    "findings[*].due",
    "findings[*].retest",
    "unknown.*",
)
"""Members of a drill's evidence.json that nothing in the bundle confirms: docs/evidence.md lists the same."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where all of this lies; the operator's file of anchors, too."""
    made = tmp_path_factory.mktemp("tampering")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(made / "state"))
        yield made


@pytest.fixture(scope="module")
def inner(folder):
    """A failover, as a drill copies it from its lab's store."""
    (folder / "drkit.toml").write_text(
        f'[clusters.primary]\nbootstrap_servers = "h:1"\n[clusters.dr]\nbootstrap_servers = "h:2"\n'
        f'[store]\nurl = "sqlite:///{folder}/drkit.db"\n'
    )
    config = load_config(folder / "drkit.toml")
    store = open_store(config.store.plain_url)
    played(store, config, Kind.FAILOVER, DONE)
    entries, record = store.entries("R"), load_run(store, "R")
    store.close()
    _, first = next(verifier.events([entry_document(each) for each in entries]))
    result = RunResult("R", record.machine, record.started_at, record.stages, record.positions)
    heads = [anchor_document(Anchor("R", each.seq, each.hash, each.at, "here", "dr")) for each in entries[-2:]]
    place = {"place": "__drkit_journal on dr", "cluster": "dr", "reason": None, "anchors": heads}
    listed = {"run": "R", "kind": "failover", "state": "closed", "started_at": None, "detail": "primary->dr"}
    views = (first["plan"]["source"], first["plan"]["target"])
    return InnerRun(
        files={
            JOURNAL: json_lines(map(entry_document, entries)),
            "anchors.json": json.dumps({"store": "here", "places": [place]}).encode(),
            "runs.jsonl": json_lines([listed, {**listed, "run": "A", "kind": "audit"}]),
        },
        document=run_document(result, record.plan),
        clusters=[{"alias": view["alias"], "cluster_id": view["cluster_id"] or "P"} for view in views],
    )


@pytest.fixture(scope="module")
def signer(folder):
    make_key(folder / "signer")
    return open_signer(EvidenceConfig(key=folder / "signer"))[0]


@pytest.fixture(scope="module")
def drills(folder, inner):
    """The first and the third of three drills passed; the second lost records in the middle of a partition."""
    (folder / "drills").mkdir()
    made = Drills(folder / "drills")
    for number, lose in enumerate((0, 2, 0)):
        keep(made, name(number), a_history(lose), number=number, inner=inner)
    return made


@pytest.fixture(scope="module")
def bundle(drills, signer, folder):
    """That of the second one. Tests change copies of it, or leave it as it was."""
    stated = StatedFinding(id="check:lost", owner="Grace", due="2026-12-01", retest=name(2))
    runbook = folder / "runbook.md"
    runbook.write_text("Stay calm")
    said = ExportStatements(witness="Ada", why="the yearly one", runbook=runbook, findings=(stated,))
    write_bundle(folder / "bundle", gather_drill(drills, name(1), said), signer)
    return folder / "bundle"


@pytest.fixture
def anchors(bundle, folder):
    """What did not come with the bundle: the operator's file of anchors, and the topic on dr."""
    (place,) = json.loads((bundle / "anchors.json").read_text())["places"]
    of_run = [{**each, "store": "here"} for each in place["anchors"]]
    return [*verifier.read_anchors(folder / "state" / "drkit" / "journal.anchor"), *of_run]


@pytest.fixture
def forged(bundle, signer, tmp_path):
    """What the verifier says of a copy that was changed, and signed again."""
    return lambda change: problems_of(bundle, tmp_path / "copy", signer, change)


def names(sentences, file):
    return any(file in sentence for sentence in sentences)


def test_it_is_verified_as_it_was_written(bundle, signer, anchors):
    assert verifier.verify(bundle, signer.public_pem).problems == []
    assert verifier.verify(bundle, signer.public_pem, anchors=anchors).problems == []
    document = json.loads((bundle / "evidence.json").read_text())
    assert [(each["run"], each["anchored_through"]) for each in document["journals"]] == [("R", 14)]
    assert (document["drills"]["anchored"], document["drills"]["anchored_through"]) == (3, 2)
    points = {each["name"]: each["points"] for each in document["timeline"]["series"]}
    assert points["the mirror's lag"] == [[3.0, 3], [9.0, 9]]


@pytest.mark.parametrize("file", KEPT)
def test_a_byte_of_a_file_that_was_kept_is_noticed_although_it_is_signed_again(forged, file):
    def change(copy):
        content = bytearray((copy / file).read_bytes())
        digit = next(place for place in range(len(content) // 2, len(content)) if chr(content[place]).isalnum())
        content[digit] = ord("7") if content[digit] != ord("7") else ord("8")
        (copy / file).write_bytes(content)

    assert f"{file} is not what the chain of drills says of {name(1)}" in forged(change)


@pytest.mark.parametrize("file", [*KEPT, "drills.jsonl", "drill-anchors.json", "evidence.json", "report.html"])
def test_a_file_that_is_missing_is_named_although_it_is_signed_again(bundle, forged, signer, tmp_path, file):
    copy = tmp_path / "unsigned"
    shutil.copytree(bundle, copy)
    (copy / file).unlink()
    assert verifier.verify(copy, signer.public_pem).problems == [f"{file} is missing"]
    if file not in ("evidence.json", "report.html"):  # whoever signs again needs both
        assert names(forged(lambda copy: (copy / file).unlink()), f"{file} is missing")


def test_a_file_that_nothing_of_the_drill_wrote_is_named_although_it_is_signed(forged):
    assert names(
        forged(lambda copy: (copy / "history/more.jsonl").write_text("")), "history/more.jsonl is not a file of"
    )

    def another_journal(copy):
        shutil.copyfile(copy / JOURNAL, copy / "journal/S.jsonl")

    assert names(forged(another_journal), "journal/S.jsonl is not among the files that were kept of")


def test_a_file_of_another_drill_is_noticed_although_it_is_signed_again(forged, drills, inner, folder):
    rows = chained([json.loads(row) for row in inner.files[JOURNAL].replace(b"done", b"well").splitlines()])
    heads = [{member: row[member] for member in ("run", "seq", "hash", "at")} for row in rows[-2:]]
    place = {"place": "f", "cluster": None, "reason": None, "anchors": heads}
    files = {
        JOURNAL: json_lines(rows),
        "anchors.json": json.dumps({"store": "x", "places": [place]}).encode(),
        "runs.jsonl": inner.files["runs.jsonl"].replace(b'"A"', b'"B"'),
    }
    another = replace(inner, files=files, clusters=[{**each, "cluster_id": "X"} for each in inner.clusters])
    (folder / "others").mkdir()
    others = Drills(folder / "others")
    keep(others, name(7), a_history(lose=3), rto=50.0, title="Another", inner=another, number=9)
    same = [each for each in KEPT if (drills.path / name(1) / each).read_bytes() == _of(others, each)]
    assert same == ["history/history.json", "history/attempts.jsonl", "history/positions.jsonl"]
    for file in (each for each in KEPT if each not in same):
        told = forged(lambda copy, file=file: (copy / file).write_bytes(_of(others, file)))
        assert f"{file} is not what the chain of drills says of {name(1)}" in told


def _of(drills, file):
    return (drills.path / name(7) / file).read_bytes()


@pytest.mark.parametrize("file", ROWS)
@pytest.mark.parametrize("place", [0, -1])
def test_a_row_that_was_taken_out_is_noticed_although_it_is_signed_again(forged, file, place):
    def take_out(copy):
        rows = (copy / file).read_text().splitlines(keepends=True)
        del rows[place]
        (copy / file).write_text("".join(rows))

    told = forged(take_out)
    if file != "drills.jsonl":
        assert f"{file} is not what the chain of drills says of {name(1)}" in told
    elif place == 0:
        assert names(told, "a drill is missing, or the chain was written again")
    else:
        assert names(told, "The chain of drills was cut or written again: entry 2 was anchored")


def test_the_end_of_the_chain_that_was_taken_out_everywhere_is_noticed_by_anchors_from_elsewhere(
    bundle, signer, anchors, tmp_path
):
    def forget_the_last_drill(folder):
        rows = [json.loads(line) for line in (folder / "drills.jsonl").read_text().splitlines()][:-1]
        (folder / "drills.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        kept = json.loads((folder / "drill-anchors.json").read_text())
        (folder / "drill-anchors.json").write_text(json.dumps({**kept, "drills": kept["drills"][:-1]}))
        document = json.loads((folder / "evidence.json").read_text())
        document["drills"] |= {"entries": 2, "head": rows[-1]["hash"], "anchored": 2, "anchored_through": 1}
        for each in document["findings"]:
            each["status"] = "open"
        (folder / "evidence.json").write_text(json.dumps(document))

    copy = tmp_path / "copy"
    assert problems_of(bundle, copy, signer, forget_the_last_drill) == [], "its anchors are its own, and a note says so"
    found = verifier.verify(copy, anchors=anchors)
    assert found.problems == [
        "The chain of drills lacks entry 2, which the anchors given have from before the export: it was cut"
    ]
    later = [*anchors[:2], {**anchors[2], "at": "2126-01-01T00:00:00Z"}, *anchors[3:]]
    found = verifier.verify(copy, anchors=later)
    assert found.problems == []
    assert "1 more entries of the chain of drills were anchored after the export, by those given: compare with" in str(
        found.notes
    )


@pytest.mark.parametrize("row", [0, 1, 2])
def test_an_anchor_of_the_chain_of_drills_that_was_taken_out_is_noticed(forged, row):
    def take_out(folder):
        kept = json.loads((folder / "drill-anchors.json").read_text())
        del kept["drills"][row]
        (folder / "drill-anchors.json").write_text(json.dumps(kept))

    assert names(forged(take_out), "drills.anchored is said to be 3, and the raw data gives 2")


# -- evidence.json, field by field -----------------------------------------------------------------------------------


CHECKED_ALL_THE_SAME = (
    "runbook.file",  # it names a file of the bundle
    "runbook.revision",  # it is null here, and `unknown` says why
    "runbook.changed_since",
    "findings[0].retest",  # it closes the finding
)


def test_every_field_of_evidence_follows_from_the_files_or_is_listed_as_resting_on_the_signature(bundle, forged):
    document = json.loads((bundle / "evidence.json").read_text())
    accepted, refused = [], []
    for path, way in places(document):

        def change(copy, way=way):
            changed = json.loads((copy / "evidence.json").read_text())
            put(changed, way)
            (copy / "evidence.json").write_text(json.dumps(changed))

        (refused if forged(change) else accepted).append(path)
    assert [path for path in accepted if not rests_on_the_signature(path)] == []
    assert [path for path in refused if rests_on_the_signature(path) and path not in CHECKED_ALL_THE_SAME] == []
    assert len(refused) > 100


def places(value, path="", way=()):
    """Each innermost member of a document: what it is called, and the way to it; of a list its first and last items."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from places(each, f"{path}.{key}" if path else key, (*way, key))
    elif isinstance(value, list) and value:
        for number in sorted({0, len(value) - 1}):
            yield from places(value[number], f"{path}[{number}]", (*way, number))
    else:
        yield path, way


def put(document, way):
    """Another value of the same kind at the end of the way."""
    for step in way[:-1]:
        document = document[step]
    was = document[way[-1]]
    if isinstance(was, bool):
        document[way[-1]] = not was
    elif isinstance(was, int | float):
        document[way[-1]] = was + 1
    else:
        document[way[-1]] = f"{was}x" if isinstance(was, str) else "x"


def rests_on_the_signature(path):
    plain = re.sub(r"\[\d+\]", "[*]", path)
    return any(fnmatch.fnmatchcase(plain, pattern.replace("[", "[[]")) for pattern in SIGNATURE_ALONE)


def test_the_page_lists_what_rests_on_the_signature():
    text = (ROOT / "docs" / "evidence.md").read_text()
    section = text.partition("### A drill, field by field")[2].partition("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("|") and "signature alone" in row]
    listed = {each for row in rows for each in re.findall(r"`([^`]+)`", row)}
    assert listed == {*SIGNATURE_ALONE}


# -- result.json: the chain has it, and it follows from histories, experiment and journals ---------------------------


def of_result(change):
    """Change result.json, and enter the changed one in the chain, as somebody would who wrote it at the drill's end."""

    def changed(folder):
        result = json.loads((folder / "result.json").read_text())
        change(result)
        (folder / "result.json").write_text(json.dumps(result))
        rechain(folder)

    return changed


def rechain(folder):
    rows = [json.loads(line) for line in (folder / "drills.jsonl").read_text().splitlines()]
    body = json.loads(rows[1]["payload_text"])
    body["files"] = {each: verifier.digest_of(folder / each) for each in body["files"]}
    rows = chained([*rows[:1], {**rows[1], "payload_text": json.dumps(body)}, *rows[2:]])
    (folder / "drills.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "drill-anchors.json").write_text(json.dumps({"drills": rows, "other_drills": {}}))
    document = json.loads((folder / "evidence.json").read_text())
    document["drills"]["head"] = rows[-1]["hash"]
    (folder / "evidence.json").write_text(json.dumps(document))


def failover_of(result):
    """The document of its link's failover."""
    return result["links"][0]["failover"]


def lost_of(result):
    return next(each for each in result["checks"] if each["check"] == "lost")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r.update(run=name(2)), "result.json is of"),
        (lambda r: r.update(title="All is well"), "title of result.json"),
        (lambda r: r.update(hypothesis="It fails"), "hypothesis of result.json"),
        (lambda r: r.update(verdict="unknown"), "verdict of result.json"),
        (lambda r: r.update(exit_code=0), "exit_code of result.json"),
        (lambda r: r["reasons"].pop(), "reasons of result.json[0]"),
        (lambda r: r["checks"].pop(), "checks of result.json[2]"),
        (lambda r: lost_of(r).update(anomalies=1), "checks of result.json[0].anomalies"),
        (lambda r: lost_of(r).update(reason="a known defect"), "checks of result.json[0].reason"),
        (lambda r: lost_of(r)["witnesses"][0].update(text="never sent"), "checks of result.json[0].witnesses[0].text"),
        (lambda r: lost_of(r)["witnesses"][1].update(offset=99), "checks of result.json[0].witnesses[1].offset"),
        (lambda r: r["objectives"][0].update(objective=50), "objectives of result.json[0].objective"),
        (lambda r: r["objectives"][1].update(outcome="missed"), "objectives of result.json[1].outcome"),
        (lambda r: r["objectives"].pop(), "objectives of result.json[1]"),
        (lambda r: r["measured"].update(reread=0), "measured of result.json.reread"),
        (lambda r: r["measured"].update(unknown=1), "measured of result.json.unknown"),
        (lambda r: r["steps"].pop(3), "The steps of result.json are"),
        (lambda r: r["steps"].pop(), "The steps of result.json are"),
        (lambda r: r["steps"][1].update(line=99), "The steps of result.json are"),
        (lambda r: r["steps"].insert(0, r["steps"].pop()), "a rollback before a step"),
        (lambda r: r["steps"][1].update(section="setup"), "of result.json is in another section"),
        (lambda r: r["steps"][2].update(outcome="failed"), "was played after one that did not succeed"),
        (lambda r: r["steps"][3].update(outcome="skipped"), "is skipped, although all before it succeeded"),
        (lambda r: r["steps"][3].update(started_after_seconds=None), "or was played and has no time"),
        (lambda r: r["steps"][2].update(started_after_seconds=16.0), "overlaps another one"),
        (lambda r: r["steps"][1].update(started_after_seconds=14.0, seconds=0.5), "has a disaster at 1015.0"),
        (lambda r: r.update(seconds=10.0), "has a time outside of the drill"),
        (lambda r: r["steady_state"].update(reached=None), "was played after one that did not succeed"),
        (lambda r: r["failover"].update(run="S"), "failover of result.json.run is said"),
        (lambda r: r["links"][0]["measured"].update(rpo_records=0), "links of result.json[0].measured.rpo_records"),
        (lambda r: r["links"][0].update(topic="other"), "links of result.json[0].topic"),
        (lambda r: r["links"][0].update(link="west->dr"), "links of result.json[0].link"),
        (lambda r: r["checks"][0].update(link="west->dr"), "checks of result.json[0].link"),
        (lambda r: failover_of(r).update(run="S"), "whose journal is not in the bundle"),
        (lambda r: failover_of(r).update(mode="planned"), "mode of the failover of result.json"),
        (lambda r: failover_of(r).update(to="primary"), "to of the failover of result.json"),
        (lambda r: failover_of(r).update(digest="d" * 64), "digest of the failover of result.json"),
        (lambda r: failover_of(r).update(state="cancelled"), "state of the failover of result.json"),
        (lambda r: failover_of(r)["stages"].pop(), "stages of the failover of result.json"),
        (lambda r: failover_of(r)["stages"][0].update(outcome="failed"), "stages of the failover of result.json.fence"),
        (lambda r: failover_of(r)["evidence"].update(rpo_records=0), "rpo_records of the failover of result.json"),
        (lambda r: failover_of(r)["evidence"].update(rto_seconds=0.1), "rto_seconds of the failover of result.json"),
    ],
)
def test_a_result_that_does_not_follow_from_the_files_is_refused_although_the_chain_has_it(forged, change, says):
    told = forged(of_result(change))
    assert any(says in sentence for sentence in told), told


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        (
            "history/history.json",
            lambda d: d["links"][0].update(disaster_at=1015.9),
            "measured of result.json.rto_second",
        ),
        ("history/history.json", lambda d: d["links"][0].update(disaster_at=1020.0), "has a disaster at 1020.0"),
        ("history/history.json", lambda d: d["links"][0].update(moved=False), "says moved: false"),
        ("history/history.json", lambda d: d.update(interrupted="by hand"), "reasons of result.json[1]"),
        (
            "history/history.json",
            lambda d: d["links"][0].update(stated=[{"partition": 0, "offset": 8, "reread_at_most": 4, "at": 1018.0}]),
            "stated positions of history/history.json[0]",
        ),
        (
            "history/history.json",
            lambda d: d["links"][0].update(stated_loss={"records": 9, "lower_bound": False, "at": 1018.0}),
            "stated loss of history/history.json",
        ),
        ("experiment.json", lambda d: d["experiment"]["checks"].remove("lost"), "checks of result.json"),
        ("experiment.json", lambda d: d["experiment"]["objectives"].update(rpo_records=9), "objectives of result.json"),
        ("experiment.json", lambda d: d["experiment"]["method"].pop(), "bundle can't be read"),
        ("origin.json", lambda d: d.update(began=900.0), "has a disaster at 1015.0"),
        ("origin.json", lambda d: d["clusters"][1].update(cluster_id="other"), "has another cluster dr than"),
        ("origin.json", lambda d: d.update(operator="somebody"), "who.operator is said to be"),
    ],
)
def test_files_that_contradict_each_other_are_refused_although_the_chain_has_them(forged, file, change, says):
    def changed(folder):
        document = json.loads((folder / file).read_text())
        change(document)
        (folder / file).write_text(json.dumps(document))
        rechain(folder)

    told = forged(changed)
    assert any(says in sentence for sentence in told), told


def test_the_journal_of_a_run_that_is_listed_is_there_although_the_chain_says_otherwise(forged):
    def list_another(folder):
        text = (folder / "runs.jsonl").read_text()
        (folder / "runs.jsonl").write_text(text + text.splitlines()[0].replace('"R"', '"S"') + "\n")
        rechain(folder)

    assert any("not those of the runs that runs.jsonl lists: S" in sentence for sentence in forged(list_another))


@pytest.mark.parametrize("file", KEPT)
def test_nothing_is_signed_of_a_drill_whose_files_were_changed_since(drills, tmp_path, file):
    copy = Drills(tmp_path / "drills")
    shutil.copytree(drills.path, copy.path)
    path = copy.path / name(1) / file
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(Refused, match=re.escape(file)):
        gather_drill(copy, name(1), ExportStatements())
    path.unlink()
    with pytest.raises(DrkitError, match="left no result" if file == "result.json" else re.escape(file)):
        gather_drill(copy, name(1), ExportStatements())


def test_the_verifier_knows_the_files_that_a_drill_leaves():
    assert {*verifier.DRILL_FILES} == {*CHAINED_FILES}
