from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.model.topic_policy import AclMode
from drkit.model.topics.acls import Acl, AclRole, Changes, carried, changes, patterned, roles, writers
from drkit.model.topology import Link, LinkId, TopicPolicy

ALL = Link(LinkId("primary", "dr"), (".*",))
SOME = Link(LinkId("primary", "dr"), ("orders.*",), exclude_topics=("orders-secret",), groups=("b.*",))
PREFIXED = Link(LinkId("primary", "dr"), (".*",), policy=TopicPolicy.PREFIX)
TOPICS = ["orders", "orders-eu", "flights"]


def rule(name: str = "orders", operation: str = "read", **changes: str) -> Acl:
    given = {"resource": "topic", "pattern": "literal", "principal": "User:app", "host": "*", "permission": "allow"}
    return Acl(**{**given, **changes, "name": name, "operation": operation})


def names(found: set[Acl]) -> set[tuple[str, str]]:
    return {(each.pattern, each.name) for each in found}


@pytest.mark.parametrize(
    ("link", "pattern", "name", "expected"),
    [
        (ALL, "literal", "orders", {("literal", "orders")}),
        (ALL, "literal", "not-there-yet", {("literal", "not-there-yet")}),
        (ALL, "literal", "*", {("literal", "*")}),
        (ALL, "prefixed", "ord", {("prefixed", "ord")}),
        (PREFIXED, "literal", "orders", {("literal", "primary.orders")}),
        (PREFIXED, "literal", "*", {("prefixed", "primary.")}),
        (PREFIXED, "prefixed", "ord", {("prefixed", "primary.ord")}),
        (SOME, "literal", "orders-secret", set()),
        (SOME, "literal", "flights", set()),
        (SOME, "literal", "*", {("literal", "orders"), ("literal", "orders-eu")}),
        (SOME, "prefixed", "orders-", {("literal", "orders-eu")}),
        (SOME, "prefixed", "flights", set()),
    ],
)
def test_a_rule_goes_over_by_its_name_there_and_never_beyond_the_link(
    link: Link, pattern: str, name: str, expected: set[tuple[str, str]]
) -> None:
    topics = [topic for topic in TOPICS if link.covers_topic(topic)]
    assert names(carried([rule(name, pattern=pattern)], link, topics, [])) == expected


@pytest.mark.parametrize(
    ("patterns", "excluded", "pattern", "name", "expected"),
    [
        (("orders[.].*",), (), "prefixed", "ord", {("prefixed", "orders.")}),
        (("orders[.].*",), (), "prefixed", "orders.eu.", {("prefixed", "orders.eu.")}),
        (("orders[.].*",), (), "literal", "*", {("prefixed", "orders.")}),
        (("orders\\..*", "flights"), (), "literal", "*", {("prefixed", "orders."), ("literal", "flights")}),
        (("orders[.].*", "flights"), (), "prefixed", "fl", {("literal", "flights")}),
        (("orders[.].*",), (), "prefixed", "other", set()),
        (("orders[.].*",), ("orders[.]secret[.].*",), "prefixed", "orders.eu.", {("prefixed", "orders.eu.")}),
        (("orders[.].*",), ("orders[.]secret[.].*",), "prefixed", "orders.", {("literal", "orders.eu.1")}),
        (("orders[.].*",), ("o.*s",), "prefixed", "orders.eu", {("literal", "orders.eu.1")}),
        (("orders[.](eu|us)[.].*",), (), "prefixed", "orders.", {("literal", "orders.eu.1")}),
        (("orders.eu.*.",), (), "literal", "*", {("literal", "orders.eu.1")}),
    ],
)
def test_a_rule_about_a_prefix_stays_one_where_the_link_covers_all_of_it(
    patterns: tuple[str, ...], excluded: tuple[str, ...], pattern: str, name: str, expected: set[tuple[str, str]]
) -> None:
    link = Link(LinkId("primary", "dr"), patterns, exclude_topics=excluded)
    topics = [topic for topic in ("orders.eu.1", "orders.secret.1", "flights") if link.covers_topic(topic)]
    assert names(carried([rule(name, pattern=pattern)], link, topics, [])) == expected


def test_what_drkit_itself_may_do_is_not_carried() -> None:
    given = [rule("orders"), rule("orders", principal="User:drkit"), rule("orders", "all", principal="User:drkit-dr")]
    assert carried(given, ALL, TOPICS, [], {"User:drkit", "User:drkit-dr"}) == {rule("orders")}


def test_on_the_way_back_of_a_prefix_link_names_lose_their_prefix() -> None:
    back = PREFIXED.reversed()
    found = carried([rule("primary.orders"), rule("own"), rule("*")], back, ["primary.orders"], [])
    assert names(found) == {("literal", "orders")}


def test_groups_keep_their_names() -> None:
    given = [rule(name, resource="group") for name in ("billing", "other", "*")]
    assert names(carried(given, SOME, [], ["billing", "board", "other"])) == {("literal", "billing"), ("prefixed", "b")}
    assert names(carried(given, ALL, [], [])) == {("literal", name) for name in ("billing", "other", "*")}
    assert patterned(given)
    assert not patterned(given[:2])


def test_what_fences_a_cluster_stays_there() -> None:
    fences = [
        rule("orders", "write", permission="deny", principal="User:*"),
        rule("*", "all", permission="deny", principal="User:*"),
        rule("billing", "read", resource="group", permission="deny", principal="User:*"),
    ]
    assert carried(fences, ALL, TOPICS, []) == set()
    others = [
        rule("orders", "write", permission="deny"),
        rule("orders", "write", permission="deny", principal="User:*", host="10.0.0.1"),
        rule("orders", "read", permission="deny", principal="User:*"),
    ]
    assert carried(others, ALL, TOPICS, []) == set(others)


def test_a_standby_lets_nobody_write_until_the_switch() -> None:
    read, write, everything = rule("a"), rule("a", "write"), rule("b", "all")
    forbidden = rule("a", "all", permission="deny", principal="User:bad")
    found = roles([read, write, everything, forbidden], AclMode.STANDBY)
    assert found == {
        read: AclRole.ON,
        write: AclRole.DUE,
        everything: AclRole.DUE,
        rule("b"): AclRole.UNTIL_SWITCH,
        rule("b", "describe_configs"): AclRole.UNTIL_SWITCH,
        forbidden: AclRole.ON,
    }
    own = rule("b")
    assert roles([everything, own], AclMode.STANDBY)[own] is AclRole.ON, "it is wanted for itself, too"
    assert set(roles([read, write, everything], AclMode.COPY).values()) == {AclRole.ON}


def test_what_is_ours_is_noted_before_it_is_there_and_what_is_not_stays() -> None:
    ours, theirs, due, gone, gone_due = (rule(name) for name in ("ours", "theirs", "due", "gone", "gone-due"))
    todo = changes(
        {ours: AclRole.ON, theirs: AclRole.ON, due: AclRole.DUE},
        {gone: AclRole.ON, gone_due: AclRole.DUE},
        {theirs, gone, rule("unrelated")},
    )
    assert todo.note == {ours: AclRole.ON, due: AclRole.DUE}
    assert (todo.put, todo.remove, todo.forget) == ({ours}, {gone}, {gone, gone_due})


def test_nothing_is_to_be_done_twice() -> None:
    on, due, until = rule("on"), rule("due", "write"), rule("until")
    noted = {on: AclRole.ON, due: AclRole.DUE, until: AclRole.UNTIL_SWITCH}
    todo = changes(noted, noted, {on, until})
    assert todo == Changes()


def test_a_standby_again_takes_back_what_the_switch_put_and_it_stays_ours_until_it_is_gone() -> None:
    write = rule("a", "write")
    todo = changes({write: AclRole.DUE}, {write: AclRole.ON}, {write})
    assert (todo.remove, todo.note, todo.note_after) == ({write}, {}, {write: AclRole.DUE})
    assert changes({write: AclRole.DUE}, {write: AclRole.DUE}, {write}).forget == {write}, "somebody put it by hand"


def test_who_may_write_on_a_standby_is_seen() -> None:
    literal, wide, prefix = rule("a", "write"), rule("*", "all"), rule("b", "write", pattern="prefixed")
    harmless = [
        rule("a"),
        rule("x", "write"),
        rule("a", "write", permission="deny", principal="User:else"),
        rule("c", "all", resource="group"),
    ]
    mirror = rule("*", "write", principal="User:mirror")
    there = [literal, wide, prefix, mirror, *harmless]
    assert writers(there, ["a", "b1"], "User:mirror") == [wide, literal, prefix]
    assert writers([mirror], ["a"], None) == [], "the only one that may write is taken for the mirror"
    assert writers([mirror, literal], ["a"], None) == [mirror, literal]


def test_who_is_denied_what_he_is_allowed_writes_nothing() -> None:
    allowed, prefix = rule("a", "all"), rule("b", "write", pattern="prefixed")
    denied = rule("a", "write", permission="deny")
    assert writers([allowed, denied], ["a"], "User:mirror") == []
    assert writers([allowed, replace(denied, principal="User:*", operation="all")], ["a"], "User:mirror") == []
    for other in (replace(denied, principal="User:else"), replace(denied, host="h"), replace(denied, operation="read")):
        assert writers([allowed, other], ["a"], "User:mirror") == [allowed]
    assert writers([prefix, replace(denied, name="b1")], ["b1"], "User:mirror") == []
    assert writers([prefix, replace(denied, name="b1")], ["b1", "b2"], "User:mirror") == [prefix]


def test_a_rule_is_its_key() -> None:
    odd = rule('a"✈', principal="User:CN=a,O=b")
    assert Acl.parse(odd.key) == odd
