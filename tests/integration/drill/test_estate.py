"""A drill on an estate: it rehearses, touches nothing, and is remembered; nothing that strikes is played there."""

import pytest

from drkit.drill.results.archive import drill_lease
from drkit.failover.run.rehearsal import REHEARSAL_GROUPS
from drkit.model.runs import verify_chain
from drkit.observe.drill_history import DRILL
from tests.integration.failover.running.test_verbs import document
from tests.support.links.estates import mirror, own_link, texts

pytestmark = pytest.mark.lab
ESTATE = ("drill", "run", "--target", "estate")


@pytest.fixture
def own(lab, tmp_path, unique_name):
    """Mirrored to its end, with a group; no mirror runs any more."""
    mine = own_link(lab, tmp_path, unique_name)
    topic = mine.create("primary", "t")
    mine.produce("primary", topic, texts("x", 30))
    mine.commit("primary", "g1", topic, {0: 12})
    mirror(mine)
    yield mine
    mine.store.close()


def groups_on_dr(own):
    with own.estate() as estate:
        groups = estate.groups("dr")
        mine = [each for each in groups.committed() if own.name in each.group]
        return sorted((each.group, *each.tp, each.offset) for each in mine), [
            each for each in groups.list_groups() if each.startswith(REHEARSAL_GROUPS) and own.name in each
        ]


def test_a_drill_on_an_estate_rehearses_and_is_remembered(own):
    before = groups_on_dr(own)
    found = document(own, *ESTATE, "--to", "dr", schema="drill")
    assert (found["target"], found["to"], found["verdict"]) == ("estate", ["dr"], "passed")
    assert [each["outcome"] for each in found["steps"]] == ["skipped", "ok"]
    assert "was not played: primary->dr has no canary" in found["reasons"][0]
    (rehearsal,) = found["rehearsals"]
    assert (rehearsal["kind"], rehearsal["state"], rehearsal["refusals"]) == ("rehearsal", "closed", [])
    assert groups_on_dr(own) == before

    (kept,) = (each for each in own.store.runs() if each.kind == DRILL)
    assert (kept.run, kept.state, kept.detail) == (found["run"], "passed", "Rehearsal on the estate, to dr")
    assert verify_chain(own.store.entries(kept.run)) is None
    (known,) = document(own, "status", schema="status")["drills"]
    assert (known["run"], known["verdict"], known["last_passed_at"]) == (kept.run, "passed", known["started_at"])
    assert kept.run in {each["run"] for each in document(own, "runs", schema="runs")["runs"]}

    own.produce("primary", own.topic("t"), texts("late", 4))  # nobody brings it over
    found = document(own, *ESTATE, code=1, schema="drill")
    assert found["verdict"] == "failed"
    assert "a failover would be refused now" in found["reasons"][0]
    (known,) = document(own, "status", schema="status")["drills"]
    assert (known["verdict"], known["last_passed_at"] is not None) == ("failed", True)


def test_nothing_that_strikes_is_played_on_an_estate(own):
    """Nor anything else of an experiment; and of several drills at once there is one."""
    for name in ("primary-lost", "topic-deleted", "reprotect"):
        error = document(own, *ESTATE, name, code=3, schema="error")["error"]
        assert "is not allowed on an estate" in error["what"]
    document(own, *ESTATE, "--all", code=2, schema="error")
    with drill_lease(own.store, "other"):
        error = document(own, *ESTATE, code=3, schema="error")["error"]
        assert "is acting on the drills of this store" in error["what"]
        error = document(own, "drill", "run", "primary-lost", code=3, schema="error")["error"]
        assert "is acting on the drills of this store" in error["what"]
    assert [each for each in own.store.runs() if each.kind == DRILL] == []
