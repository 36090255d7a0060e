"""Whether drkit may do what its commands need: a finding for each command, before the night."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest

from drkit.config import Config
from drkit.model.errors import Unreachable
from drkit.model.topology import Link
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.readiness.rights_checks import OTHER_RIGHTS, RIGHTS, rights_checks
from drkit.permissions.table import Operation
from drkit.store import open_store
from tests.support.pages.page import LINK, snapshot

EVERYTHING = frozenset(each.value for each in Operation)
CONFIG = Config.model_validate(
    {
        "clusters": {"primary": {"bootstrap_servers": "p:1"}, "dr": {"bootstrap_servers": "d:1"}},
        "links": [{"source": "primary", "target": "dr", "offsets": "translate"}],
    }
)


class Cluster:
    """A cluster with an authorizer that denies some operations, by the name of the resource."""

    def __init__(self, alias: str, denied: Collection[tuple[str, str]] = (), error: Exception | None = None) -> None:
        self.alias = alias
        self.principal = None
        self.asked = 0
        self._denied = denied
        self._error = error

    def _allowed(self, name: str) -> frozenset[str]:
        return EVERYTHING - {operation for of, operation in self._denied if of == name}

    def allowed_on_cluster(self) -> frozenset[str]:
        if self._error is not None:
            raise self._error
        self.asked += 1
        return self._allowed("kafka-cluster") - {"create"}

    def allowed_on_topics(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        self.asked += 1
        return {name: self._allowed(name) for name in names}

    def allowed(self, groups: Iterable[str]) -> dict[str, frozenset[str]]:
        self.asked += 1
        return {name: self._allowed(name) for name in groups}


class Clusters:
    def __init__(self, *clusters: Cluster) -> None:
        self._clusters = {each.alias: each for each in clusters}

    def admin(self, alias: str, *, may_be_gone: bool) -> Cluster:
        assert may_be_gone
        return self._clusters[alias]

    groups = admin


def checks(primary: Cluster, dr: Cluster, **changes: Any) -> dict[str, Check]:
    store = open_store("sqlite:///:memory:")
    try:
        found = rights_checks(CONFIG, store, snapshot(**changes), Clusters(primary, dr))  # type: ignore[arg-type]
    finally:
        store.close()
    return {f"{each.name} ({each.outcome})" if each.name == OTHER_RIGHTS else each.name: each for each in found}


OTHERS = f"{OTHER_RIGHTS} ({CheckOutcome.OK})"
UNASKED = f"{OTHER_RIGHTS} ({CheckOutcome.UNKNOWN})"


def test_where_nothing_is_missing_two_checks_say_so_and_each_cluster_is_asked_once_for_all_commands():
    primary, dr = Cluster("primary"), Cluster("dr")
    found = checks(primary, dr)
    assert set(found) == {RIGHTS, OTHERS}
    assert {each.outcome for each in found.values()} == {CheckOutcome.OK}
    assert "primary and dr" in found[OTHERS].reason.replace("dr and primary", "primary and dr")
    assert "mirror, link, rehearse, fence, failback, reprotect, salvage, audit" in found[OTHERS].reason
    assert (primary.asked, dr.asked) == (3, 3), "the cluster itself, its topics, its groups"


def test_what_a_failover_does_without_is_a_warning_of_it_that_says_what_is_lost():
    hidden = {("flights", "describe_configs"), ("flights", "alter_configs")}  # which includes the other one
    found = checks(Cluster("primary", hidden), Cluster("dr"))
    assert found[RIGHTS].outcome is CheckOutcome.WARN
    assert found[RIGHTS].reason.startswith("drkit lacks DescribeConfigs on 1 topic of primary: flights: where records")
    assert "a planned move stops before its commit, and an unplanned one counts them" in found[RIGHTS].reason
    assert f"drkit acls --command failover --cluster primary --link '{LINK}'" in found[RIGHTS].remedy
    others = {"mirror", "rehearse", "salvage", "audit", "failback", "reprotect"}
    warned = {name for name, each in found.items() if name.startswith("rights of ") and name != OTHERS}
    assert warned == {f"rights of {command}" for command in others}
    assert {found[name].outcome for name in warned} == {CheckOutcome.WARN}
    for command in ("mirror", "salvage", "audit"):
        assert "an audit and a salvage are refused" in found[f"rights of {command}"].reason


@pytest.mark.parametrize(
    ("denied", "commands", "told"),
    [
        (("flights", "delete"), {"failback", "reprotect"}, "nothing is deleted, and the run stops"),
        (("billing", "delete"), {"failback", "reprotect"}, "the scrub stops after the topics were recreated"),
        (("__transaction_state", "read"), {"mirror"}, "no captured offset is exact"),
    ],
)
def test_what_the_primary_denies_is_a_warning_of_each_command_that_needs_it(denied, commands, told):
    found = checks(Cluster("primary", {denied}), Cluster("dr"))
    name, operation = denied
    title = "".join(word.capitalize() for word in operation.split("_"))
    for command in commands:
        check = found[f"rights of {command}"]
        assert check.outcome is CheckOutcome.WARN, "a failover is accepted"
        assert f"{title} on 1 " in check.reason
        assert f": {name}" in check.reason
        assert told in check.reason
        assert f"drkit acls --command {command} --cluster primary --link '{LINK}'" in check.remedy
    assert {name for name in found if name.startswith("rights of ")} == {
        OTHERS,
        *(f"rights of {command}" for command in commands),
    }
    assert found[RIGHTS].outcome is CheckOutcome.OK
    assert not any(f" {command}," in f"{found[OTHERS].reason}," for command in commands)


def test_what_a_failover_lacks_on_the_target_fails_and_on_the_source_warns():
    lacking = checks(Cluster("primary"), Cluster("dr", [("billing", "read")]))
    assert lacking[RIGHTS].outcome is CheckOutcome.FAIL
    assert "a failover would be refused: drkit lacks Read on 1 group of dr: billing" in lacking[RIGHTS].reason
    hidden = [("billing", each.value) for each in Operation]
    source = checks(Cluster("primary", hidden), Cluster("dr"))
    assert source[RIGHTS].outcome is CheckOutcome.WARN
    assert "groups stand where the mirror last saw them, and aren't fenced" in source[RIGHTS].reason


def test_a_cluster_that_is_not_asked_is_not_said_to_allow_anything():
    silent = checks(Cluster("primary"), Cluster("dr"), source_reachable=False)
    assert silent[RIGHTS].reason == "drkit has the ACLs on dr that a failover needs"
    assert silent[OTHERS].reason.startswith("drkit has the ACLs on dr that")
    assert silent[UNASKED].reason == "not asked on primary: primary does not answer"
    broken = Unreachable("dr didn't answer", remedy="Bring it up")
    failing = checks(Cluster("primary"), Cluster("dr", error=broken))
    assert (failing[RIGHTS].outcome, failing[RIGHTS].remedy) == (CheckOutcome.UNKNOWN, "Bring it up")
    assert failing[UNASKED].reason == "not asked on dr: dr didn't answer"


def test_after_a_failover_the_next_move_is_a_failback_whose_missing_rights_warn():
    found = checks(Cluster("primary", [("flights", "delete")]), Cluster("dr"), state="sealed")
    assert found[RIGHTS].outcome is CheckOutcome.WARN
    assert "a failback would be refused: drkit lacks Delete on 1 topic of primary: flights" in found[RIGHTS].reason
    assert "rights of failback" not in found
    assert "rights of reprotect" in found
    assert ", failover," in found[OTHERS].reason


def test_a_right_that_is_known_to_be_missing_is_told_though_the_primary_is_silent():
    hidden = [("billing", each.value) for each in Operation]
    found = checks(Cluster("primary"), Cluster("dr", hidden), state="sealed", source_reachable=False)
    assert found[RIGHTS].outcome is CheckOutcome.WARN
    assert found[RIGHTS].reason.startswith("a failback would be refused: drkit lacks ")
    assert "of dr: billing" in found[RIGHTS].reason
    assert found[RIGHTS].reason.endswith("; not asked on primary: primary does not answer")
    assert "drkit acls --command failback --cluster dr" in found[RIGHTS].remedy
    whole = checks(Cluster("primary"), Cluster("dr"), state="sealed", source_reachable=False)
    assert (whole[RIGHTS].outcome, whole[RIGHTS].reason) == (CheckOutcome.UNKNOWN, "primary does not answer")


def test_topics_and_groups_that_the_link_names_in_full_are_asked_for_before_they_are_there():
    link = Link(LINK, topics=("orders", "flights"), groups=("shipping",))
    denied = [("orders", "read"), ("shipping", "describe")]
    found = checks(Cluster("primary", denied), Cluster("dr"), link=link)
    assert "drkit lacks Read on 1 topic of primary: orders" in found["rights of mirror"].reason
    assert found[RIGHTS].outcome is CheckOutcome.OK, "a failover uses only what is there"


def test_where_records_are_altered_no_way_back_is_asked_for():
    link = replace(Link(LINK, topics=(".*",)), provenance=True)
    found = checks(Cluster("primary", [("flights", "delete")]), Cluster("dr"), link=link)
    assert not {"rights of failback", "rights of reprotect"} & set(found)
