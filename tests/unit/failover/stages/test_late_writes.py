"""Which topics of the cluster that groups left a mirror can't have written to."""

import pytest

from drkit.failover.stages.late_writes import _is_alien
from drkit.model.link_state import TopicState


def state(target_topic_id):
    return TopicState("t", "t", "source", target_topic_id, 1, 1, created_by_drkit=True)


@pytest.mark.parametrize(
    ("known", "topic_id", "at_work", "alien"),
    [
        (state("mirrored"), "mirrored", False, False),
        (state("mirrored"), "made anew", False, True),
        (state("mirrored"), "made anew", True, True),
        (state("mirrored"), None, False, False),  # not looked at
        (state(""), "created by the mirror", False, False),
        (None, "new", False, True),
        (None, "new", True, False),  # a mirror that runs may be about to write it down
    ],
)
def test_a_topic_that_the_mirror_never_saw_is_wholly_of_others(known, topic_id, at_work, alien):
    assert _is_alien(known, topic_id, at_work) is alien
