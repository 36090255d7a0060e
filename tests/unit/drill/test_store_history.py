"""Drills in the store: one at a time, each a run of it; how old the last passed one is."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from drkit import __version__
from drkit.config import ClusterConfig, Config, LinkConfig, Objectives
from drkit.drill.results.archive import Drills, begin_in_store, drill_lease, keep_in_store, lost
from drkit.model.errors import Refused
from drkit.model.link_state import TopicState
from drkit.model.runs import RunSummary, verify_chain
from drkit.model.topology import LinkId
from drkit.observe.drill_history import DRILL, drill_kinds, drills_document, known_drills, surroundings_now
from drkit.observe.metrics.status_metrics import DrillCollector
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.readiness import drills_check
from tests.support.drills.kept_drills import TITLE, a_history, keep, name

CLUSTERS = {
    alias: ClusterConfig(bootstrap_servers=f"localhost:{port}") for port, alias in enumerate(("primary", "dr"), 1)
}
CONFIG = Config(clusters=CLUSTERS, links=(LinkConfig(source="primary", target="dr"),))
AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)


def run(title, verdict, days_ago, kind=DRILL):
    began = AT - timedelta(days=days_ago)
    return RunSummary(f"{kind}-{title}-{days_ago}", kind, verdict, began, began, title)


def test_a_drill_is_a_run_of_the_store_with_its_verdict_and_digests(store, tmp_path):
    drills = Drills(tmp_path / "drills")
    result = drills.result(keep(drills, name(1), a_history()))
    for _ in range(2):  # again changes nothing
        assert keep_in_store(CONFIG, store, drills.path, result) is None
    (listed,) = store.runs()
    assert (listed.run, listed.kind, listed.state, listed.detail) == (name(1), DRILL, result.verdict, TITLE)
    entries = store.entries(name(1))
    assert verify_chain(entries) is None
    (entry,) = entries
    chained = json.loads((drills.path / "chain.jsonl").read_text())
    said = json.loads(entry.payload)
    assert said.pop("surroundings") == surroundings_now(CONFIG, store).document()
    assert said == json.loads(chained["payload_text"])


def test_a_drill_that_was_killed_is_the_newest_of_its_kind(store, tmp_path):
    drills = Drills(tmp_path / "drills")
    result = drills.result(keep(drills, name(1), a_history()))
    keep_in_store(CONFIG, store, drills.path, result)
    assert begin_in_store(store, name(2), TITLE, AT + timedelta(days=1)) is None
    (kind,) = known_drills(CONFIG, store)
    assert (kind.run, kind.verdict, kind.passed_run) == (name(2), "unknown", name(1))
    assert "not passed last" in drills_check([kind], None, AT).reason
    later = drills.result(keep(drills, name(2), a_history(), number=1))
    for _ in range(2):
        assert keep_in_store(CONFIG, store, drills.path, later) is None
    assert verify_chain(store.entries(name(2))) is None
    assert [each.event for each in store.entries(name(2))] == ["begun", "kept"]
    assert known_drills(CONFIG, store)[0].verdict == "passed"


def test_what_changed_since_a_drill_passed_is_told(store, tmp_path, monkeypatch):
    drills = Drills(tmp_path / "drills")
    result = drills.result(keep(drills, name(1), a_history()))
    assert result.verdict == "passed"
    keep_in_store(CONFIG, store, drills.path, result)
    (same,) = known_drills(CONFIG, store)
    assert same.changes == ()
    assert drills_check([same], None, AT).outcome is CheckOutcome.OK
    store.put_topic_states(LinkId("primary", "dr"), [TopicState("new", "new", "id-1", "id-2", 1, 1, True)])
    monkeypatch.setattr("drkit.observe.drill_history.__version__", "9.9")
    other = CONFIG.model_copy(update={"objectives": Objectives(rpo_records=7)})
    (changed,) = known_drills(other, store)
    assert [each.split(" ")[0:2] for each in changed.changes] == [
        ["drkit", __version__],
        ["the", "configuration"],
        ["the", "topics"],
    ]
    assert "(0 topics then, 1 now)" in changed.changes[2]
    check = drills_check([changed], None, AT)
    assert (check.outcome, "changed since: drkit" in check.reason) == (CheckOutcome.WARN, True)
    (document,) = drills_document([changed], AT)
    assert document["changed_since_passed"] == list(changed.changes)


def test_of_a_drill_that_says_nothing_of_it_changes_are_not_known(store):
    store.put_run(run("A", "passed", 3))
    (kind,) = known_drills(CONFIG, store)
    assert kind.changes is None
    assert drills_check([kind], None, AT).outcome is CheckOutcome.OK


def test_one_drill_at_a_time(store):
    with drill_lease(store, "one") as mine:
        assert lost(mine) is None
        with pytest.raises(Refused, match=r"run one.*the drills of this store"), drill_lease(store, "other"):
            pass
    with drill_lease(store, "other"):
        pass


def test_who_lost_the_right_to_drill_is_told(store):
    with drill_lease(store, "one") as mine:
        mine.stop_acting("another drill holds the lease")
        assert "another drill holds the lease" in lost(mine)


def test_the_last_passed_one_of_each_kind_counts():
    runs = [
        run("A", "passed", 9),
        run("A", "passed", 3),
        run("A", "failed", 1),
        run("B", "unknown", 2),
        run("C", "closed", 1, kind="failover"),
    ]
    kinds = drill_kinds(runs)
    assert [(each.title, each.verdict, each.age_seconds(AT)) for each in kinds] == [
        ("A", "failed", 3 * 86_400.0),
        ("B", "unknown", None),
    ]
    first, second = drills_document(kinds, AT)
    assert (first["last_passed_at"], first["started_at"]) == (AT - timedelta(days=3), AT - timedelta(days=1))
    assert (second["last_passed_at"], second["last_passed_age_seconds"]) == (None, None)


@pytest.mark.parametrize(
    ("runs", "every_days", "outcome", "said"),
    [
        ([], None, None, ""),
        ([], 30, CheckOutcome.WARN, "no drill has passed"),
        ([run("A", "passed", 3)], None, CheckOutcome.OK, "of 1 kind"),
        ([run("A", "passed", 3)], 30, CheckOutcome.OK, "last passed drill"),
        ([run("A", "passed", 31)], 30, CheckOutcome.WARN, "one is due every 30 days"),
        ([run("A", "passed", 9), run("A", "failed", 1)], 30, CheckOutcome.WARN, "not passed last: A (failed)"),
        ([run("A", "unknown", 1)], None, CheckOutcome.WARN, "no drill has passed"),
    ],
)
def test_doctor_judges_what_is_asked_and_what_did_not_pass(runs, every_days, outcome, said):
    check = drills_check(drill_kinds(runs), every_days, AT)
    assert (None if check is None else check.outcome) == outcome
    assert check is None or said in check.reason


def test_metrics_have_no_age_where_none_passed():
    runs = [run("A", "passed", 3), run("B", "failed", 1)]
    families = {each.name: each for each in DrillCollector(lambda: drill_kinds(runs)).collect()}
    aged = [sample.labels["title"] for sample in families["drkit_drill_last_passed_age_seconds"].samples]
    assert aged == ["A"]
    newest = {
        (sample.labels["title"], sample.labels["verdict"]): sample.value
        for sample in families["drkit_drill_last_verdict"].samples
    }
    assert newest["B", "failed"] == newest["A", "passed"] == 1
    assert newest["B", "passed"] == 0
    assert families["drkit_drill_changes_since_passed"].samples == []  # not known is not 0


def test_metrics_count_what_changed_since_one_passed():
    (kind,) = drill_kinds([run("A", "passed", 3)])
    for changes, counted in (((), 0), (("the configuration", "the topics"), 2)):
        known = [replace(kind, changes=changes)]
        families = DrillCollector(known.copy).collect()
        (sample,) = next(each for each in families if each.name == "drkit_drill_changes_since_passed").samples
        assert (sample.labels["title"], sample.value) == ("A", counted)
