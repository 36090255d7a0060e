"""What `drkit doctor` and `status` say of clusters that don't answer: nothing that only these could tell is ok."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.config import ClusterConfig, Config, Objectives
from drkit.kafka.admin.cluster_description import Disk
from drkit.kafka.admin.clusters import observing
from drkit.lab.ports import free_ports
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.offsets import Certainty, GroupPosition, OffsetMapping, Watermark
from drkit.observe.link_status import RecoveryPoint
from drkit.observe.readiness.backlog_checks import disk_check, retention_check
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.readiness.readiness import (
    Readiness,
    _clusters,
    _left_behind,
    _objectives,
    _positions_fresh,
    _positions_known,
    _serving,
    _topics,
    readiness,
)
from drkit.observe.readiness.store_safety import placement
from drkit.observe.status import link_statuses
from drkit.store import open_store
from drkit.store.api import Store
from tests.support.pages.page import LINK, snapshot

MAY_BE_OK = {
    "installation": "it is about Spark and Java on this machine",
    "problems": "it is about what the store has on record, and says that the logs aren't seen",
}
"""The checks that may be ok while both clusters are silent, each with the reason."""
DR_IS_BACK = "drkit doctor asks again: run it once dr answers"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Two clusters at whose addresses nothing listens; the source isn't on the store's host."""
    ports = free_ports(2)
    aliases = ("primary", "dr")
    clusters = {each: {"bootstrap_servers": f"127.0.0.1:{port}"} for each, port in zip(aliases, ports, strict=True)}
    link = {"source": "primary", "target": "dr", "topics": [".*"], "groups": [".*"]}
    url = f"sqlite:///{tmp_path}/drkit.db"
    return Config.model_validate({"clusters": clusters, "store": {"url": url}, "links": [link]})


@pytest.fixture
def store(config: Config) -> Iterator[Store]:
    opened = open_store(config.store.plain_url)
    yield opened
    opened.close()


def asked(config: Config, store: Store) -> Readiness:
    with observing(config.clusters, None) as clusters:
        return readiness(config, store, config.links[0].link(), clusters)


def remember(store: Store) -> None:
    """A mirror that was caught up a second ago, with one group."""
    at = now() - timedelta(seconds=1)
    store.append_mappings(LINK, [OffsetMapping("flights", 0, 1, 0, 0)])
    store.put_watermarks(LINK, [Watermark("flights", 0, 1, 10, 10, 0, 10, 0, at)])
    store.put_group_positions(LINK, [GroupPosition("billing", "flights", 0, 7, "", at)])


@pytest.mark.parametrize("mirrored", [True, False])
def test_with_both_clusters_silent_nothing_is_ok_that_only_they_could_tell(config, store, mirrored):
    """`topics on the target` was ok of no topics without asking, positions were by what dr held when last seen."""
    if mirrored:
        remember(store)
    found = asked(config, store)
    well = {each.name for each in found.checks if each.outcome is CheckOutcome.OK}
    assert well <= MAY_BE_OK.keys()
    assert (found.expected_loss_records, found.expected_loss_seconds) == (None, None)
    by_name = {each.name: each for each in found.checks}
    assert by_name["topics on the target"].outcome is CheckOutcome.UNKNOWN
    assert by_name["recovery point"].outcome is CheckOutcome.UNKNOWN
    assert by_name["problems"].reason.startswith("none recorded; what the logs show now isn't known: primary does not")
    assert by_name["cluster ids"].outcome is CheckOutcome.UNKNOWN
    unknown = [each for each in found.checks if each.outcome is CheckOutcome.UNKNOWN]
    assert all(each.reason for each in unknown)
    left_out = by_name["not asked"]
    for name in ("versions", "topic settings", "access rules", "client settings", "fence", "retention on the source"):
        assert name in left_out.reason
    assert left_out.reason.endswith(": primary does not answer and dr does not answer")
    assert left_out.remedy == "drkit doctor asks again: run it once primary and dr answers"


def test_the_status_of_a_silent_target_says_that_its_number_is_as_last_seen(config, store):
    remember(store)
    (status,) = link_statuses(config, store, [config.links[0].link()])
    point = status.recovery_point
    assert (point.records, point.lower_bound) == (0, True)
    assert "the target does not answer" in (point.reason or "")
    assert "what it has lost since the last look isn't counted" in (point.reason or "")


SILENT: list[dict[str, Any]] = [
    {"target_reachable": False},
    {"target_unread": "the target does not answer for 1 partition (flights:0: it has no leader: broker 3 is down)"},
]


@pytest.mark.parametrize("silent", SILENT)
@pytest.mark.parametrize("certainty", [Certainty.CONSERVATIVE, Certainty.EXACT])
def test_positions_are_not_called_translatable_by_a_target_that_is_silent(silent, certainty):
    status = snapshot(**silent)
    found = _positions_known(status, [SimpleNamespace(translation=certainty)])  # type: ignore[list-item]
    assert found.outcome is CheckOutcome.UNKNOWN
    assert "whether dr still holds the places of 1 position isn't known" in found.reason
    assert found.remedy == DR_IS_BACK


@pytest.mark.parametrize("silent", SILENT)
def test_the_loss_is_not_known_by_a_target_that_is_silent(silent):
    found = _objectives(snapshot(**silent, recovery_point=RecoveryPoint(0, 0.0)), Objectives())
    assert (found.outcome, found.remedy) == (CheckOutcome.UNKNOWN, DR_IS_BACK)
    assert found.reason.startswith("the loss is unknown (0 records when last seen): whether dr still holds")


def test_positions_of_a_silent_source_are_not_fresh_however_young():
    """The group may have committed since; it was ok for ten seconds after the source's death."""
    young = snapshot(source_reachable=False)
    assert _positions_fresh(young, young.groups).outcome is CheckOutcome.WARN
    assert _positions_fresh(snapshot(), snapshot().groups).outcome is CheckOutcome.OK


def test_no_topic_to_look_for_is_no_answer_of_a_silent_cluster():
    def of(**changes: Any) -> Check:
        return _topics(snapshot(partitions=(), **changes), "dr", SimpleNamespace())  # type: ignore[arg-type]

    assert of().outcome is CheckOutcome.OK
    for silent in ({"source_reachable": False}, {"target_reachable": False}):
        assert of(**silent).outcome is CheckOutcome.UNKNOWN


def test_a_partition_without_an_answer_is_not_called_an_answer_of_its_cluster():
    why = "the source does not answer for 1 partition (flights:0: it has no leader: broker 3 is down)"
    assert _clusters(snapshot()).outcome is CheckOutcome.OK
    assert (_clusters(snapshot(source_unread=why)).outcome, why in _clusters(snapshot(source_unread=why)).reason) == (
        CheckOutcome.WARN,
        True,
    )
    there = why.replace("source", "target")
    found = _serving(snapshot(state="sealed", target_unread=there))
    assert (found.outcome, found.reason) == (CheckOutcome.WARN, f"dr serves, but not all of it: {there}")


@pytest.mark.parametrize(
    ("silent", "once"),
    [
        ({"target_reachable": False}, "once dr answers"),
        ({"source_reachable": False}, "once primary answers"),
        ({"source_reachable": False, "target_reachable": False}, "once primary and dr answer"),
        ({"target_unread": "the target does not answer for 1 partition"}, "once dr answers"),
    ],
)
def test_what_stayed_behind_is_counted_once_the_cluster_answers_that_is_silent(silent, once):
    point = RecoveryPoint(3, 1.0, lower_bound=True)
    assert (
        f"; {once}, `drkit runs RUN --audit`"
        in _left_behind(snapshot(state="sealed", recovery_point=point, **silent)).remedy
    )


def test_the_store_is_not_called_apart_from_brokers_that_are_not_known(config):
    """It was ok by the bootstrap servers alone, though another broker may be the store's host."""
    brokers = SimpleNamespace(brokers=lambda: [SimpleNamespace(host="127.0.0.1")])

    def silent() -> Any:
        raise Unreachable("primary does not answer")

    of_source: dict[str, Any] = {"primary": SimpleNamespace(brokers=silent), "dr": brokers}
    clusters: Any = SimpleNamespace(admin=lambda alias, **_: of_source[alias])
    elsewhere = config.model_copy(
        update={"clusters": {**config.clusters, "primary": ClusterConfig(bootstrap_servers="192.0.2.1:9092")}}
    )
    found = placement(elsewhere, config.links[0].link(), clusters)
    assert (found.outcome, found.remedy) == (
        CheckOutcome.UNKNOWN,
        "drkit doctor asks again: run it once primary answers",
    )
    of_source["primary"] = SimpleNamespace(brokers=lambda: [SimpleNamespace(host="192.0.2.1")])
    assert placement(elsewhere, config.links[0].link(), clusters).outcome is CheckOutcome.OK


class Source:
    """A source whose settings and offsets can be read, of no partition that is behind."""

    alias = "primary"

    def topic_configs(self, *_: Any, **__: Any) -> dict[str, dict[str, str]]:
        return {}

    def offsets_for_times(self, *_: Any) -> dict[Any, Any]:
        return {}


class Target:
    """A target with room on its one disk."""

    def topics(self, *_: Any) -> dict[str, Any]:
        return {}

    def log_sizes(self, *_: Any) -> dict[Any, int]:
        return {}

    def disks(self) -> list[Disk]:
        return [Disk(1, "/d", 100, 90)]


def clusters_of(**there: object) -> Any:
    return SimpleNamespace(admin=lambda alias, **_: there[alias])


def test_what_a_source_still_has_to_send_is_not_nothing_because_it_is_silent():
    clusters = clusters_of(dr=Target(), primary=SimpleNamespace(log_sizes=lambda _: {}))
    assert disk_check(snapshot(), clusters).outcome is CheckOutcome.OK
    for silent in ({"source_reachable": False}, {"source_unread": "the source does not answer for 1 partition"}):
        found = disk_check(snapshot(**silent), clusters)
        assert found.outcome is CheckOutcome.UNKNOWN
        assert "how much is still to come isn't known" in found.reason


def test_retention_is_not_known_of_a_partition_that_is_as_last_seen():
    clusters = clusters_of(primary=Source())
    status = snapshot(partitions=(), source_unread="the source does not answer for 1 partition")
    assert retention_check(snapshot(partitions=()), clusters, now()).outcome is CheckOutcome.OK
    assert retention_check(status, clusters, now()).outcome is CheckOutcome.UNKNOWN
