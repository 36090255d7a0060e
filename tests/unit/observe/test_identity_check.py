"""Which clusters answer, and who drkit is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from drkit.model.errors import AuthenticationError, DrkitError
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.identity_check import ClusterIdentity, cluster_identities, identity_check
from tests.support.pages.page import snapshot


def clusters(error: DrkitError | None = None) -> Any:
    def cluster_id(alias: str) -> str:
        if error is not None and alias == "dr":
            raise error
        return f"{alias}-id"

    def admin(alias: str, **_: object) -> Any:
        return SimpleNamespace(cluster_id=lambda: cluster_id(alias), principal="User:drkit")

    return SimpleNamespace(admin=admin)


def test_both_ids_and_principals_are_told() -> None:
    found = cluster_identities(snapshot(), clusters())
    assert found == tuple(ClusterIdentity(each, f"{each}-id", "User:drkit") for each in ("primary", "dr"))
    check = identity_check(found)
    assert check.outcome is CheckOutcome.OK
    assert check.reason == "primary is primary-id, drkit is User:drkit there; dr is dr-id, drkit is User:drkit there"


def test_a_principal_that_only_the_cluster_knows_is_not_guessed() -> None:
    check = identity_check([ClusterIdentity("primary", "x", None)])
    assert (check.outcome, check.reason) == (CheckOutcome.OK, "primary is x, who drkit is there it alone knows")


def test_of_a_silent_cluster_nothing_is_told_and_it_is_not_asked_again() -> None:
    found = cluster_identities(snapshot(source_reachable=False), clusters())
    assert found[0] == ClusterIdentity("primary", None, "User:drkit", "primary does not answer")
    check = identity_check(found)
    assert check.outcome is CheckOutcome.UNKNOWN
    assert check.reason == "primary: not known, primary does not answer; dr is dr-id, drkit is User:drkit there"
    assert check.remedy == "drkit doctor asks again: run it once primary answers"


def test_another_cluster_at_an_address_is_named_by_its_id() -> None:
    """`status` doesn't count it as the link's, so it isn't read otherwise."""
    elsewhere = snapshot(target_reachable=False, refused={"dr": "it isn't the link's cluster"})
    assert cluster_identities(elsewhere, clusters())[1].cluster_id == "dr-id"
    denied = cluster_identities(elsewhere, clusters(AuthenticationError("bad password")))
    assert (denied[1].cluster_id, denied[1].reason) == (None, "bad password")
