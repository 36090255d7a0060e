"""What a status names of a former primary: topics that are open to its clients, or hidden from drkit; groups that no
move has taken."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from drkit.failover.fencing.deny_rules import closing_rules
from drkit.lag.groups_left_behind import GroupsLeftBehind
from drkit.model.errors import Unreachable
from drkit.model.offsets import GroupPosition
from drkit.model.runs import RunSummary
from drkit.model.topics.acls import fence_rules_kind
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.observe import poll_problems
from drkit.observe.cluster_log_ends import ClusterLogEnds
from drkit.observe.poll_problems import hidden_topics, left_behind_problems, outside_the_fence

AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)
LINK = Link(LinkId("primary", "dr"), topics=(".*",))
RULES = closing_rules(["seen", "hidden"], [])
STORE = SimpleNamespace(
    notes=lambda _link, kind: {rule.key: "1" for rule in RULES} if kind == fence_rules_kind("primary") else {},
    topic_states=lambda _link: {"seen": None, "mirrored": None},
)


def ends(rules=RULES):
    return ClusterLogEnds(end={TopicPartition("seen", 0): 3}, ids={"seen": "id"}, rules=frozenset(rules))


def clusters(denied=(), error=None):
    def topics(names, *, denied, hides=frozenset(denied)):
        if error is not None:
            raise error
        assert "seen" not in names, "it is listed"
        denied |= hides & set(names)
        return {}

    return SimpleNamespace(admin=lambda _alias, **_: SimpleNamespace(topics=topics))


@pytest.mark.parametrize("name", ["hidden", "mirrored"])
def test_a_topic_that_was_fenced_or_mirrored_and_may_not_be_seen_is_hidden_not_gone(name):
    assert hidden_topics(STORE, LINK, clusters({name}), ends()) == {name}


def test_a_primary_that_does_not_answer_hides_nothing():
    assert hidden_topics(STORE, LINK, clusters({"hidden"}), ClusterLogEnds(reason="no broker")) == frozenset()
    assert hidden_topics(STORE, LINK, clusters(error=Unreachable("gone")), ends()) == frozenset()


def test_of_a_hidden_topic_it_is_said_that_its_fence_can_t_be_seen():
    (problem,) = outside_the_fence(STORE, LINK, ends(), {"hidden"}, AT)
    assert (problem.kind, problem.topic) == ("source_topic_denied", "hidden")
    assert problem.reason.endswith("whether clients write there behind the fence isn't known")


def test_a_rule_that_is_gone_is_told_of_a_hidden_topic_too():
    found = list(outside_the_fence(STORE, LINK, ends(closing_rules(["seen"], [])), {"hidden"}, AT))
    assert [each.kind for each in found] == ["outside_the_fence", "source_topic_denied"]
    assert "was removed from primary" in found[0].reason


@pytest.mark.parametrize(("state", "told"), [("closed", True), ("abandoned", True), ("committed", False)])
def test_a_group_that_no_move_has_taken_is_told_once_the_run_is_over(monkeypatch, state, told):
    found = GroupsLeftBehind((GroupPosition("h", "seen", 0, 5, "", AT), GroupPosition("h", "seen", 1, 6, "", AT)))
    monkeypatch.setattr(poll_problems, "groups_left_behind", lambda *_, only_new: found if only_new else None)
    store = SimpleNamespace(
        runs=lambda: [RunSummary("R", "failover", state, AT, AT, "primary->dr")], group_positions=lambda _link: ()
    )
    problems = list(left_behind_problems(None, store, LINK, "R", AT))
    assert [each.kind for each in problems] == ["group_left_behind"] * told
    for problem in problems:
        assert "1 group committed on primary, and no move has taken what is there: h on seen:0 at 5" in problem.reason
        assert problem.remedy.startswith("drkit failover --to dr --link 'primary->dr' --group h; ")


OVER = SimpleNamespace(runs=list, group_positions=lambda _link: ())
UNKNOWN = "whether groups have committed on primary that no move has taken isn't known: "


def test_that_the_groups_of_a_primary_can_t_be_listed_is_said(monkeypatch):
    def gone(*_, **__):
        raise Unreachable("no broker")

    monkeypatch.setattr(poll_problems, "groups_left_behind", gone)
    (problem,) = left_behind_problems(None, OVER, LINK, None, AT)
    assert (problem.kind, problem.reason) == ("group_left_behind", f"{UNKNOWN}no broker")


def test_so_it_is_of_those_that_are_not_listed_or_may_not_be_read(monkeypatch):
    found = GroupsLeftBehind((), "broker 2 does not answer")
    monkeypatch.setattr(poll_problems, "groups_left_behind", lambda *_, **__: found)
    (problem,) = left_behind_problems(None, OVER, LINK, None, AT)
    assert problem.reason == f"{UNKNOWN}broker 2 does not answer"
    assert "`drkit acls`" in problem.remedy
    position = GroupPosition("h", "seen", 0, 5, "", AT)
    found = GroupsLeftBehind((position,), "offsets of i: access is denied")
    (problem,) = left_behind_problems(None, OVER, LINK, None, AT)
    assert "h on seen:0 at 5" in problem.reason
    assert problem.reason.endswith("Whether there are more isn't known: offsets of i: access is denied")


def test_where_all_is_read_and_moved_nothing_is_left_behind(monkeypatch):
    monkeypatch.setattr(poll_problems, "groups_left_behind", lambda *_, **__: GroupsLeftBehind())
    assert list(left_behind_problems(None, OVER, LINK, None, AT)) == []
