"""The verbs as an operator or another program runs them: exit codes, JSON, what a terminal shows."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from drkit.cli.output import ABOUT
from drkit.drill.environment.log_surgery import flip
from drkit.failover.context.lease import RunLease
from drkit.failover.journal.run_record import load_run
from drkit.model.link_state import Direction
from tests.support.collection.sampling import some_of
from tests.support.commands.running import Commands
from tests.support.commands.terminal import at_terminal
from tests.support.links.estates import mirror, own_link, texts

pytestmark = [pytest.mark.lab, some_of("failover verbs", 3)]

SCHEMAS = Path(__file__).parents[4] / "docs" / "schemas"


def drkit(own, *words, code=0, timeout=120):
    """Run a verb; its stdout. `code` is the exit code that it must end with."""
    command = [sys.executable, "-m", "drkit", *words, "--config", str(own.config_path)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
    )
    assert ended.returncode == code, f"{ended.returncode}: {ended.stdout}\n{ended.stderr}"
    return ended


def document(own, *words, code=0, schema="failover", events=None):
    """Run a verb with `--output json --log-format json`; its one document, valid by its schema.

    Each line on stderr is an event; they are added to `events`.
    """
    ended = Commands(own.config_path).drkit(*words, "--output", "json", "--log-format", "json")
    assert ended.returncode == code, f"{ended.returncode}: {ended.stdout}\n{ended.stderr}"
    told = [json.loads(line) for line in ended.stderr.splitlines()]
    assert all({"at", "level", "logger", "message", *ABOUT} <= event.keys() for event in told)
    if events is not None:
        events += told
    found = json.loads(ended.stdout)
    Draft202012Validator(json.loads((SCHEMAS / f"{schema}.schema.json").read_text())).validate(found)
    return found


@pytest.fixture
def orders(own):
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 40))
    names = [own.commit("primary", "g1", topic, {0: 40, 1: 12}), own.commit("primary", "g2", topic, {1: 1})]
    mirror(own)
    return topic, names


def test_the_whole_way_in_json(own, orders, tmp_path):
    topic, names = orders
    file = tmp_path / "plan.json"
    planned = document(own, "failover", "--to", "dr", "--dry-run", "--out", str(file))
    assert (planned["state"], planned["dry_run"], planned["run"]) == ("planned", True, None)
    assert planned["needs"] == ["--accept-unfenced"]
    assert {stage["outcome"] for stage in planned["stages"]} == {"skipped"}
    assert document(own, "failover", "--to", "dr", "--dry-run")["digest"] == planned["digest"]
    assert own.store.link_control(own.link.id) is None
    assert own.store.runs() == []

    placed = ("--all-groups", "--group", f"{names[0]}=earliest", "--group", f"{names[1]}=-0s")
    own_places = document(own, "failover", "--to", "dr", "--dry-run", *placed)
    assert [(p["group"], p["partition"], p["target_offset"], p["reread"]) for p in own_places["groups"]] == sorted(
        [(names[0], 0, 0, 40), (names[0], 1, 0, 12), (names[1], 1, 1, 0)]
    )

    elsewhere = ("failover", "--to", "primary", "--planned", "--group", "g", "--plan", str(file), "--yes")
    refused = document(own, *elsewhere, code=2, schema="error")
    assert "--to, --planned/--unplanned, --group or --topic contradicts the plan" in refused["error"]["what"]
    events: list = []
    done = document(own, "failover", "--to", "dr", "--plan", str(file), "--yes", "--accept-unfenced", events=events)
    ended = [event for event in events if event.get("outcome")]
    assert [event["stage"] for event in ended] == [stage["name"] for stage in done["stages"]]
    assert {(event["link"], event["run"]) for event in ended} == {(str(own.link.id), done["run"])}
    assert (done["state"], done["dry_run"], done["digest"]) == ("closed", False, planned["digest"])
    assert (done["kind"], done["mode"], done["to"]) == ("failover", "unplanned", "dr")
    assert [(g["group"], g["partition"], g["target_offset"]) for g in done["groups"]] == [
        (names[0], 0, 40),
        (names[0], 1, 12),
        (names[1], 1, 1),
    ]
    assert {g["strategy"] for g in done["groups"]} == {"preserved"}
    assert done["evidence"]["rpo_records"] == 0
    assert done["evidence"]["fenced"] is False
    assert done["evidence"]["rto_seconds"] > 0
    assert own.committed("dr", names[0]) == {(topic, 0): 40, (topic, 1): 12}

    listed = document(own, "runs", schema="runs")["runs"]
    assert [(run["run"], run["kind"], run["state"]) for run in listed] == [(done["run"], "failover", "closed")]
    journal = document(own, "runs", done["run"], schema="runs")
    chain = journal["chain"]
    assert (chain["state"], chain["intact"], chain["problem"]) == ("holds", True, None)
    assert chain["entries"] == len(journal["entries"])
    assert journal["result"]["evidence"] == done["evidence"]
    assert journal["result"]["groups"] == done["groups"]

    again = document(own, "failover", "--to", "dr", "--yes", "--accept-unfenced", code=3, schema="error")
    assert done["run"] in again["error"]["what"]
    assert document(own, "resume", done["run"], "--yes")["state"] == "closed"


def test_a_stale_plan_says_what_moved(own, orders, tmp_path):
    topic, names = orders
    file = tmp_path / "plan.json"
    drkit(own, "failover", "--to", "dr", "--out", str(file))
    own.commit("primary", "g1", topic, {1: 13})
    stale = document(own, "failover", "--plan", str(file), "--yes", "--accept-unfenced", code=4, schema="error")
    assert f"{names[0]} on {topic}:1 would now go to 13, not 12" in stale["error"]["what"]
    assert stale["error"]["kind"] == "StalePlan"


def test_a_missed_objective_is_six_with_everything_done(lab, tmp_path, unique_name):
    own = own_link(lab, tmp_path, unique_name, rpo_records=3, rto_seconds=600)
    try:
        topic = own.create("primary", "t")
        own.produce("primary", topic, texts("x", 5))
        group = own.commit("primary", "g", topic, {0: 4})
        mirror(own)
        own.produce("primary", topic, texts("late", 4))
        words = ("failover", "--to", "dr", "--accept-unfenced")
        refused = document(own, *words, code=3, schema="error")["error"]
        assert "8 records of primary would be lost although it answers" in refused["what"]
        assert "--accept-loss 8" in refused["remedy"]
        document(own, *words, "--accept-loss", "7", code=3, schema="error")
        assert document(own, *words, "--dry-run", "--accept-loss", "8")["refusals"] == []
        done = document(own, *words, "--unplanned", code=6)
        assert done["state"] == "closed"
        assert done["evidence"]["rpo_records"] == 8
        assert done["lost_by_topic"] == [
            {"topic": topic, "records": 8, "seconds": done["evidence"]["rpo_seconds"]},
        ]
        assert done["objectives_missed"] == ["RPO 8 records, objective 3"]
        assert own.committed("dr", group) == {(topic, 0): 4}
    finally:
        own.store.close()


def test_an_objective_that_cannot_be_judged_is_not_met(lab, tmp_path, unique_name):
    own = own_link(lab, tmp_path, unique_name, rpo_records=0, rpo_seconds=600)
    try:
        topic = own.create("primary", "t")
        own.produce("primary", topic, texts("x", 5))
        own.commit("primary", "g", topic, {0: 4})
        mirror(own)
        own.produce("primary", topic, texts("late", 4))
        file, bootstrap = own.config_path, lab.bootstrap("primary")
        file.write_text(file.read_text().replace(f'"{bootstrap}"', '"127.0.0.1:1"'))
        done = document(own, "failover", "--to", "dr", "--yes", "--accept-unfenced", code=6)
        assert (done["evidence"]["rpo_records"], done["evidence"]["rpo_lower_bound"]) == (0, True)
        assert done["objectives_missed"] == []
        assert len(done["objectives_not_judged"]) == 1
        assert "RPO in records is only known to be 0 or more" in done["objectives_not_judged"][0]
        file.write_text(file.read_text().replace('"127.0.0.1:1"', f'"{bootstrap}"'))
        shown = document(own, "runs", done["run"], "--audit", schema="runs")
        evidence = shown["result"]["evidence"]
        assert (evidence["rpo_records"], evidence["rpo_basis"], evidence["rpo_lower_bound"]) == (8, "audited", False)
    finally:
        own.store.close()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--to", "mars"], 2, "no cluster 'mars' is configured"),
        ([], 2, "no cluster is named"),
        (["--to", "dr", "--at", "noon"], 2, "is not a time"),
        (["--to", "dr", "--at", "2026-10-25T02:30", "--timezone", "Europe/Berlin"], 2, "happened twice"),
        (["--to", "dr", "--to-datetime", "2099-01-01T00:00:00Z"], 2, "in the future"),
        (["--to", "dr", "--group", "nobody"], 2, "no group nobody is known"),
        (["--to", "dr", "--topic", "nope:0"], 2, "carries no topic nope"),
        (["--to", "dr", "--dry-run", "--execute"], 2, "exclude each other"),
        (["--to", "dr", "--group", "g", "--all-groups"], 2, "exclude each other"),
        (["--plan", "none.json"], 2, "can't be read"),
        (["--to", "primary"], 3, "no link leads to primary"),
        (["--to", "dr", "--yes"], 3, "can't be fenced"),
    ],
)
@pytest.mark.usefixtures("orders")
def test_what_is_refused_is_said_with_the_remedy(own, words, code, said):
    ended = drkit(own, "failover", *words, code=code)
    told = " ".join(ended.stderr.split())
    assert said in told
    assert "do:" in told
    assert "Traceback" not in told
    assert own.store.link_control(own.link.id) is None


def test_two_operators_at_once_are_told_of_each_other(own, orders):
    del orders
    with RunLease(own.store, own.link.id, "01JTHEFIRST"):
        ended = drkit(own, "failover", "--to", "dr", "--yes", "--accept-unfenced", code=3)
    assert "run 01JTHEFIRST) is acting on primary->dr" in " ".join(ended.stderr.split())


def test_people_see_the_plan_the_stages_and_the_evidence_in_80_columns(own, orders):
    _topic, names = orders
    ended = drkit(own, "failover", "--to", "dr", "--at", "-1s", "--yes", "--accept-unfenced")
    shown = ended.stdout
    assert max(len(line) for line in shown.splitlines()) <= 80
    for word in ("failover plan", "before", "after", "fence", "verify", names[0][:12], "lost (RPO)", "took (RTO)"):
        assert word in shown
    assert "UNFENCED" in shown
    for stage in ("fence", "drain", "translate", "commit", "switch", "verify", "close"):
        assert stage in ended.stderr


def test_at_a_terminal_the_plan_is_shown_and_asked_for_once(own, orders, lab):
    """The README's first command, with the primary dead: nothing but the cluster's name has to be typed."""
    topic, names = orders
    file = own.config_path
    file.write_text(file.read_text().replace(lab.bootstrap("primary"), "127.0.0.1:1"))
    command = [sys.executable, "-m", "drkit", "failover", "--to", "dr", "--at", "-1s", "--config", str(file)]
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, b"dr\n")
        ended = subprocess.run(command, stdin=terminal, capture_output=True, text=True, timeout=120, check=False)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert ended.returncode == 0, ended.stderr
    assert "primary can't be fenced" in " ".join(ended.stderr.split()), "what is asked names it"
    assert own.committed("dr", names[0]) == {(topic, 0): 40, (topic, 1): 12}


def test_at_a_terminal_only_what_was_shown_is_accepted(lab, tmp_path, unique_name):
    """The name was typed for a source that can't be fenced; then 20 records were lost where 5 are allowed."""
    own = own_link(lab, tmp_path, unique_name, max_loss_records=5)
    try:
        topic = own.create("primary", "orders")
        own.produce("primary", topic, texts("x", 40))
        group = own.commit("primary", "g", topic, {0: 40})
        mirror(own)

        def meanwhile():
            own.produce("primary", topic, texts("late", 10))
            return "dr"

        words = ("failover", "--to", "dr", "--unplanned", "--config", str(own.config_path))
        shown = at_terminal([sys.executable, "-m", "drkit", *words], answers=[("to continue", meanwhile)], seconds=120)
        said = " ".join(shown.screen.split())
        assert "primary can't be fenced" in said
        assert (shown.code, own.committed("dr", group)) == (3, {}), shown.screen
        assert "20 records would be lost, but max_loss_records is 5" in said
        assert own.store.link_control(own.link.id).direction is Direction.ACTIVE
        # the loss is shown by now: the name accepts so many, and no more
        shown = at_terminal([sys.executable, "-m", "drkit", *words], answers=[("to continue", meanwhile)], seconds=120)
        assert (shown.code, own.committed("dr", group)) == (3, {}), shown.screen
        assert "40 records would be lost, but max_loss_records is 5" in " ".join(shown.screen.split())
        shown = at_terminal([sys.executable, "-m", "drkit", *words], answers=[("to continue", "dr")], seconds=120)
        assert (shown.code, own.committed("dr", group)) == (0, {(topic, 0): 40}), shown.screen
        (closed,) = (each for each in own.store.runs() if each.state == "closed")
        assert load_run(own.store, closed.run).plan.accept_loss == 40
    finally:
        own.store.close()


def test_a_changed_journal_is_not_believed(own, orders):
    del orders
    done = document(own, "failover", "--to", "dr", "--yes", "--accept-unfenced")
    entries = own.store.entries(done["run"])
    own.store.append_entry(
        type(entries[0])(done["run"], len(entries), entries[0].at, "x", "x", "{}", "0" * 64, "0" * 64)
    )
    journal = document(own, "runs", done["run"], code=1, schema="runs")
    assert journal["chain"]["intact"] is False
    assert "broken at entry" in journal["chain"]["problem"]
    refused = drkit(own, "resume", done["run"], "--yes", code=1)
    assert "is broken" in refused.stderr


def test_failback_shows_and_refuses(own, orders):
    topic, _names = orders
    refused = drkit(own, "failback", "--to", "primary", "--dry-run", code=3)
    assert "was not failed away from" in refused.stderr
    own.produce("primary", topic, texts("only-here", 1))
    document(own, "failover", "--to", "dr", "--unplanned", "--yes", "--accept-unfenced")
    planned = document(own, "failback", "--dry-run")
    assert (planned["kind"], planned["to"], planned["dry_run"]) == ("failback", "primary", True)
    assert [(each["topic"], each["deleted_offsets"], each["only_here"]) for each in planned["scrub"]] == [
        (topic, 82, 2)
    ]
    assert (planned["level"], planned["engine"]) == (False, "mirror")
    by_spark = document(own, "failback", "--dry-run", "--engine", "spark")
    assert (by_spark["engine"], by_spark["digest"] == planned["digest"]) == ("spark", False)
    assert "by Spark" in next(stage["reason"] for stage in by_spark["stages"] if stage["name"] == "reseed")
    speculating = drkit(own, "failback", "--engine", "spark", "--spark-conf", "spark.speculation=true", "--yes", code=2)
    assert "spark.speculation is true" in speculating.stderr
    assert sum(planned["deleted_group_offsets"].values()) == 3
    unfenced = drkit(own, "failback", "--yes", code=3)
    assert "dr can't be fenced" in unfenced.stderr
    assert planned["needs"] == ["--accept-unfenced"]
    unconfirmed = drkit(own, "failback", "--yes", "--accept-unfenced", code=3)
    assert "--cluster-id" in unconfirmed.stderr
    wrong = document(
        own, "failback", "--yes", "--accept-unfenced", "--cluster-id", "not-this-one", code=3, schema="error"
    )
    assert "is not the id of primary" in wrong["error"]["what"]
    assert [len(values) for values in own.values("primary", topic).values()] == [41, 41]
    assert own.store.link_control(own.link.id).direction is Direction.SEALED
    assert drkit(own, "resume", "--yes", code=3).stderr.count("no run is unfinished") == 1


@pytest.mark.spark
def test_failback_with_sparks_salvage_and_audit(lab, own, orders, tmp_path, toolchain, monkeypatch):
    del toolchain  # fetched before the clock of the command runs
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # where the audit's findings go
    topic, names = orders
    own.produce("primary", topic, texts("only-here", 6))
    document(own, "failover", "--to", "dr", "--accept-loss", "12", "--yes", "--accept-unfenced")
    own.produce("dr", topic, texts("on-dr", 9))
    own.commit("dr", "g1", topic, {0: 45})
    on_dr = own.values("dr", topic)
    unread = {name: own.unread("dr", name, topic) for name in names}
    cluster_id = document(own, "failback", "--dry-run")["cluster_id"]
    words = (
        "failback",
        "--to",
        "primary",
        "--yes",
        "--accept-unfenced",
        "--cluster-id",
        cluster_id,
        "--salvage-dir",
        str(tmp_path / "kept"),
    )
    data = lab.dir / "nodes" / "primary-1" / "data" / f"{topic}-0"
    batch = flip(data, 0, -1, mask=0x01)
    refused = drkit(own, *words, code=3, timeout=400)
    assert f"{topic}:0 from offset {batch.base_offset} to {batch.last_offset}" in refused.stderr
    flip(data, 0, -1, mask=0x01)  # as it was
    assert [len(values) for values in own.values("primary", topic).values()] == [46, 46], "nothing is deleted"
    done = document(own, *words)
    assert (done["state"], done["kind"], done["mode"], done["to"]) == ("closed", "failback", "planned", "primary")
    assert done["salvaged"]["records"] == 12
    assert (Path(done["salvaged"]["path"]) / "manifest.json").is_file()
    assert done["audit"]["verdict"] == "clean"
    assert {stage["outcome"] for stage in done["stages"]} == {"ok"}
    assert done["evidence"]["rpo_records"] == 0
    assert {group["target_offset"] for group in done["groups"]} >= {45, 12, 1}
    assert own.values("primary", topic) == on_dr
    assert {name: own.unread("primary", name, topic) for name in names} == unread


@pytest.mark.long
def test_a_failback_that_deletes_nothing_with_sparks_audit(own, orders, tmp_path, toolchain, monkeypatch):
    del toolchain
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    topic, names = orders
    document(own, "failover", "--to", "dr", "--yes", "--accept-unfenced")
    own.produce("dr", topic, texts("on-dr", 9))
    own.commit("dr", "g1", topic, {0: 45})
    on_dr = own.values("dr", topic)
    unread = {name: own.unread("dr", name, topic) for name in names}
    done = document(own, "failback", "--to", "primary", "--yes", "--accept-unfenced")
    assert (done["state"], done["level"], done["audit"]["verdict"]) == ("closed", True, "clean")
    assert own.values("primary", topic) == on_dr
    assert {name: own.unread("primary", name, topic) for name in names} == unread
