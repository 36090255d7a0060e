"""Between which clusters a link mirrors: kept from its first mirror on, and no others are taken for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.model.errors import NotShown, Refused
from drkit.model.link_state import Direction
from drkit.model.topology import Link, LinkId
from drkit.store.api import Store
from drkit.store.link_notes import (
    check_clusters,
    check_source_cluster,
    check_target_cluster,
    known_source_cluster,
    known_target_cluster,
    note_clusters,
    other_target_remedy,
)

LINK = Link(LinkId("primary", "dr"), topics=(".*",))


def test_before_a_mirror_has_run_every_cluster_will_do(store: Store) -> None:
    check_clusters(store, LINK, "any", "other")
    check_source_cluster(store, LINK.id, "any")
    check_target_cluster(store, LINK, "other")
    assert (known_source_cluster(store, LINK.id), known_target_cluster(store, LINK.id)) == (None, None)


def test_the_first_clusters_are_kept_and_others_are_refused(store: Store) -> None:
    note_clusters(store, LINK.id, source="one", target="two")
    check_clusters(store, LINK, "one", "two")
    with pytest.raises(Refused, match="primary is another cluster now: its id is other, primary->dr mirrors from one"):
        check_clusters(store, LINK, "other", "two")
    with pytest.raises(Refused, match="changed places"):
        check_clusters(store, LINK, "two", "one")
    with pytest.raises(NotShown, match="is another cluster now"):
        check_source_cluster(store, LINK.id, "other")
    check_source_cluster(store, LINK.id, "one")
    assert known_source_cluster(store, LINK.id) == "one"


def test_another_target_is_named_with_both_ids_and_the_command_that_accepts_it(store: Store) -> None:
    note_clusters(store, LINK.id, source="one", target="two")
    what = "dr is another cluster than the one that was mirrored to: its id is new, was two"
    with pytest.raises(Refused, match=what) as refused:
        check_clusters(store, LINK, "one", "new")
    with pytest.raises(NotShown, match=what):
        check_target_cluster(store, LINK, "new")
    assert "drkit link resume 'primary->dr' --accept-recreated --cluster-id new" in refused.value.remedy
    note_clusters(store, LINK.id, target="new")
    check_clusters(store, LINK, "one", "new")
    check_target_cluster(store, LINK, "new")
    assert known_source_cluster(store, LINK.id) == "one"


def test_a_link_within_one_cluster_begins_again_and_again(store: Store) -> None:
    note_clusters(store, LINK.id, source="one", target="one")
    check_clusters(store, LINK, "one", "one")


def test_where_clients_were_moved_to_it_or_a_failback_writes_there_no_command_takes_it_for_the_link_s() -> None:
    serving = other_target_remedy(LINK, "new", Direction.SEALED)
    assert "drkit fence --lift --cluster primary --yes --link 'primary->dr'" in serving
    back = other_target_remedy(replace(LINK, inverse=True), "new")
    turned = other_target_remedy(LINK, "new", Direction.REVERSED)
    assert "drkit doctor" in back
    assert "drkit doctor" in turned
    assert "before the failover" not in turned, "they were deleted by the failback"
    assert not any("--accept-recreated" in said for said in (serving, back, turned))
