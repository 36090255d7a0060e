"""What no mirror copies is compared part by part; what isn't shown is not called equal."""

from __future__ import annotations

from drkit.kafka.admin.client_settings import ClientSettings
from drkit.model.topology import LinkId
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.target_checks import compared_clients

LINK = LinkId("primary", "dr")
USERS, QUOTAS = "SCRAM users", "quotas"


def shown(users: dict[str, str], quotas: dict[str, str] | None = None) -> ClientSettings:
    if quotas is None:
        return ClientSettings({USERS: users}, {QUOTAS: "cluster dr denied it: read quotas"})
    return ClientSettings({USERS: users, QUOTAS: quotas}, {})


def test_the_target_may_have_more() -> None:
    found = compared_clients(
        LINK, shown({"app": "SCRAM-SHA-512"}, {}), shown({"app": "SCRAM-SHA-512", "x": "?"}, {"q": "1"})
    )
    assert (found.outcome, found.reason) == (CheckOutcome.OK, f"dr has those of primary: {USERS}, {QUOTAS}")


def test_what_is_missing_or_different_there_is_named() -> None:
    source = shown({"app": "SCRAM-SHA-512", "billing": "SCRAM-SHA-256"}, {"client-id a": "producer_byte_rate=1"})
    target = shown({"app": "SCRAM-SHA-512"}, {"client-id a": "producer_byte_rate=2"})
    found = compared_clients(LINK, source, target)
    assert found.outcome is CheckOutcome.WARN
    assert found.reason == (
        "SCRAM users that dr lacks: billing; quotas that are different there: client-id a (producer_byte_rate=1; there "
        "producer_byte_rate=2)"
    )
    assert "set it up on dr" in found.remedy


def test_what_one_side_hides_is_unknown_and_hides_no_difference() -> None:
    found = compared_clients(LINK, shown({"app": "x"}, {"client-id a": "1"}), shown({"app": "x"}))
    assert found.outcome is CheckOutcome.UNKNOWN
    assert found.reason == ("not compared, since drkit isn't shown them: quotas (cluster dr denied it: read quotas)")
    assert "drkit acls --command doctor" in found.remedy
    worse = compared_clients(LINK, shown({"app": "x"}, {}), shown({}))
    assert worse.outcome is CheckOutcome.WARN
    assert worse.reason == "SCRAM users that dr lacks: app; not compared, since drkit isn't shown them: quotas"


def test_drkit_itself_needs_to_be_on_its_own_side_only() -> None:
    rules = "rules of transactional ids"
    source = ClientSettings(
        {
            USERS: {"drkit-primary": "SCRAM-SHA-512", "drkit-primary-app": "SCRAM-SHA-512"},
            QUOTAS: {"user drkit-primary": "producer_byte_rate=1"},
            rules: {"User:drkit-primary DESCRIBE * (LITERAL)": "ALLOW"},
        },
        {},
    )
    target = ClientSettings({USERS: {"drkit-dr": "SCRAM-SHA-512"}, QUOTAS: {}, rules: {}}, {})
    found = compared_clients(LINK, source, target, {"User:drkit-primary", "User:drkit-dr"})
    assert found.reason == "SCRAM users that dr lacks: drkit-primary-app"
