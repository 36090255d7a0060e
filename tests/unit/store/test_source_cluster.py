"""Which cluster a link mirrors from: kept from its first mirror on, and no other is taken for it."""

from __future__ import annotations

from contextlib import closing

import pytest

from drkit.model.errors import NotShown, Refused
from drkit.model.topology import LinkId
from drkit.store import open_store
from drkit.store.link_notes import check_source_cluster, keep_source_cluster, known_source_cluster

LINK = LinkId("primary", "dr")


def test_the_first_cluster_is_kept_and_another_is_refused() -> None:
    with closing(open_store("sqlite:///:memory:")) as store:
        check_source_cluster(store, LINK, "any")  # nothing is known yet
        keep_source_cluster(store, LINK, "one", "dr")
        keep_source_cluster(store, LINK, "one", "dr")
        with pytest.raises(Refused, match="is another cluster now: its id is other"):
            keep_source_cluster(store, LINK, "other", "dr")
        with pytest.raises(Refused, match="changed places"):
            keep_source_cluster(store, LINK, "dr", "one")
        with pytest.raises(NotShown, match="is another cluster now"):
            check_source_cluster(store, LINK, "other")
        check_source_cluster(store, LINK, "one")
        assert known_source_cluster(store, LINK) == "one"


def test_a_link_within_one_cluster_begins_again_and_again() -> None:
    with closing(open_store("sqlite:///:memory:")) as store:
        keep_source_cluster(store, LINK, "one", "one")
        keep_source_cluster(store, LINK, "one", "one")
        assert known_source_cluster(store, LINK) == "one"
