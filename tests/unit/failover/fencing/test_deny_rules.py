"""Which rules close a cluster, whom the standby's let through, and which record is the newest."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.config.schema.config import Config
from drkit.failover.fencing.deny_rules import closing_rules, default_allow_rules, for_everybody, standby_rules
from drkit.model.runs import FenceMethod, FenceRecord, FenceState, newest, older, record_text
from drkit.model.topics.acls import Acl, topics_denied

AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)


def allow(principal, resource, name, operation, pattern="literal"):
    return Acl(resource, name, pattern, f"User:{principal}", "*", operation, "allow")


def record(epoch, state=FenceState.CLOSED, cluster="primary"):
    return FenceRecord(cluster, epoch, f"run-{epoch}", state, FenceMethod.ACL, AT)


def test_everybody_is_denied_to_write_topics_and_to_read_groups():
    assert closing_rules(["t"], ["g"]) == {
        Acl("topic", "t", "literal", "User:*", "*", "write", "deny"),
        Acl("group", "g", "literal", "User:*", "*", "read", "deny"),
    }


def test_a_standby_is_closed_to_each_who_is_let_in_but_the_mirror():
    there = [
        allow("app", "topic", "t", "write"),
        allow("ops", "topic", "*", "all"),
        allow("prefixed", "topic", "t", "write", "prefixed"),
        allow("reader", "topic", "t", "read"),
        allow("stranger", "topic", "other", "write"),
        allow("mirror", "topic", "t", "all"),
        allow("billing", "group", "g", "read"),
    ]
    rules, gap = standby_rules(closing_rules(["t"], ["g"]), there, "User:mirror")
    assert {(rule.principal, rule.resource, rule.operation) for rule in rules} == {
        ("User:app", "topic", "write"),
        ("User:ops", "topic", "write"),
        ("User:prefixed", "topic", "write"),
        ("User:billing", "group", "read"),
    }
    assert {rule.permission for rule in rules} == {"deny"}
    assert gap == ""


def test_where_nobody_can_be_told_from_the_mirror_it_is_said():
    closed = closing_rules(["t"], [])
    rules, gap = standby_rules(
        closed, [allow("*", "topic", "t", "write"), allow("app", "topic", "t", "write")], "User:m"
    )
    assert [rule.principal for rule in rules] == ["User:app"]
    assert "a rule lets everybody in (topic t)" in gap
    assert standby_rules(closed, [allow("app", "topic", "t", "write")], None)[0] == frozenset()


def test_the_newest_epoch_decides_whenever_it_was_written():
    notes = {}
    for each in (record(9), record(10, FenceState.OPEN), record(11, cluster="dr"), record(2)):
        notes[each.name] = record_text(each)
    assert newest(notes, "primary") == record(10, FenceState.OPEN)
    assert older(notes, record(10)) == [record(9).name, record(2).name]
    assert newest(notes, "elsewhere") is None


def test_a_fence_stands_until_it_is_opened_also_while_the_cluster_is_out_of_reach():
    assert {state for state in FenceState if record(1, state).stands} == set(FenceState) - {FenceState.OPEN}
    assert not replace(record(1, FenceState.PENDING), method=FenceMethod.NONE).stands


def config(**fence):
    return {"clusters": {"primary": {"bootstrap_servers": "p:1", "fence": fence}}}


def test_the_writer_as_whom_it_is_shown_is_drkit_unless_another_is_named():
    plain = Config.model_validate(config()).clusters["primary"]
    assert plain.writer() is plain
    client = {"security.protocol": "SASL_PLAINTEXT"}
    named = Config.model_validate(config(bootstrap_servers="p:2", client=client)).clusters["primary"].writer()
    assert (named.bootstrap_servers, named.properties()) == ("p:2", client)


@pytest.mark.parametrize(
    ("fence", "said"),
    [
        ({"command": ["stop"]}, "`command` is given without `unfence`"),
        ({"unfence": ["start"]}, "`unfence` is given without `command`"),
        ({"command": []}, "command"),
        ({"client": {"acks": "all"}}, "'acks' can't be mapped"),
        ({"bootstrap_servers": "nowhere"}, "is not host:port"),
        ({"timeout_seconds": 0, "command": ["a"], "unfence": ["b"]}, "greater than 0"),
    ],
)
def test_what_a_fence_cannot_be_is_refused(fence, said):
    with pytest.raises(ValueError, match=said):
        Config.model_validate(config(**fence))


def test_a_rule_to_go_on_as_before_is_for_what_no_rule_is_about():
    there = [
        Acl("topic", "orders.", "prefixed", "User:app", "*", "read", "allow"),
        Acl("group", "billing", "literal", "User:app", "*", "read", "allow"),
    ]
    found = default_allow_rules(["orders.items", "returns"], ["billing", "shipping"], there)
    assert {(rule.resource, rule.name, rule.operation, rule.permission) for rule in found} == {
        ("topic", "returns", "all", "allow"),
        ("group", "shipping", "all", "allow"),
    }
    assert (
        default_allow_rules(["returns"], [], [Acl("topic", "*", "literal", "User:app", "*", "read", "allow")])
        == frozenset()
    )
    assert for_everybody(found) == frozenset(), "they close nothing"


def test_a_fence_names_the_topics_that_everybody_is_kept_from_and_no_others():
    closed = closing_rules(["a", "b"], ["g"])
    some = Acl("topic", "c", "literal", "User:app", "*", "write", "deny")
    read = Acl("topic", "d", "literal", "User:*", "*", "read", "deny")
    open_again = default_allow_rules(["e"], [], ())
    assert topics_denied(rule.key for rule in {*closed, some, read, *open_again}) == {"a", "b"}
