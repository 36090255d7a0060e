"""Rules of the target are compared by the rules of the mirror's ACL sync."""

from __future__ import annotations

from dataclasses import replace

from drkit.model.topic_policy import AclMode
from drkit.model.topics.acls import Acl, AclRole, roles
from drkit.model.topology import Link, LinkId
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.target_checks import compared_rules, without_authorizer

OFF = Link(LinkId("primary", "dr"), topics=(".*",))
STANDBY = replace(OFF, acls=AclMode.STANDBY)
READ = Acl("topic", "orders", "literal", "User:app", "*", "read", "allow")
WRITE = replace(READ, operation="write")
OURS = {READ, WRITE}


def test_a_link_that_copies_no_rules_names_those_that_are_missing() -> None:
    found = compared_rules(OFF, OURS, {}, {READ}, mirrors=True)
    assert found.outcome is CheckOutcome.WARN
    assert found.reason == (
        "dr lacks 1 rule ('allow User:app to write topic orders') of primary, and acls = \"off\" puts none"
    )
    assert 'Set acls = "standby" on the link and start its mirror again' in found.remedy
    assert compared_rules(OFF, OURS, {}, {READ, WRITE}, mirrors=True).outcome is CheckOutcome.OK
    assert compared_rules(OFF, set(), {}, {READ}, mirrors=True).outcome is CheckOutcome.OK, (
        "more there is the target's own"
    )


def test_a_standby_is_in_step_where_reads_are_put_and_writes_are_noted() -> None:
    noted = roles(OURS, AclMode.STANDBY)
    assert noted == {READ: AclRole.ON, WRITE: AclRole.DUE}
    found = compared_rules(STANDBY, OURS, noted, {READ}, mirrors=True)
    assert (found.outcome, found.reason) == (
        CheckOutcome.OK,
        "dr has 1 rule that a standby gets; the switch puts 1 more",
    )


def test_what_the_mirror_would_put_remove_or_note_is_told() -> None:
    found = compared_rules(STANDBY, OURS, {}, set(), mirrors=False)
    assert (found.outcome, found.remedy.partition(":")[0]) == (CheckOutcome.WARN, "Start drkit mirror")
    assert found.reason == (
        "dr lacks 1 rule ('allow User:app to read topic orders'); not noted for the switch: 1 rule ('allow User:app to "
        "write topic orders')"
    )
    gone = compared_rules(STANDBY, {READ}, {READ: AclRole.ON, WRITE: AclRole.ON}, {READ, WRITE}, mirrors=True)
    assert gone.reason == "dr still has 1 rule ('allow User:app to write topic orders')"
    assert 'A mirror that began with acls = "standby" does so within seconds' in gone.remedy
    assert "one that began with another value has to be started again" in gone.remedy, "no SIGHUP changes that"
    again = compared_rules(STANDBY, {READ}, {READ: AclRole.ON}, {READ, WRITE}, {WRITE}, mirrors=True)
    assert (again.outcome, again.reason) == (
        CheckOutcome.WARN,
        "dr has again 1 rule ('allow User:app to write topic orders')",
    )


def test_a_target_without_an_authorizer_keeps_nobody_out() -> None:
    assert without_authorizer(OFF.id, set()).outcome is CheckOutcome.OK
    found = without_authorizer(OFF.id, OURS)
    assert (found.outcome, "everybody may do there what is up to 2 rules on primary" in found.reason) == (
        CheckOutcome.WARN,
        True,
    )
