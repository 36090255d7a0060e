"""What the page's headline names after a failover: of each link the command that its own plan would accept."""

import pytest

from drkit.cli.wiring.page_sources import MovedLink, way_back
from drkit.config import Config

CLUSTERS = {alias: {"bootstrap_servers": f"{alias}:1"} for alias in "abcd"}
GOOD = (
    "c was made the primary for good: to mirror from it, and fail over to a, give the link "
    'source = "c" and target = "a" in the configuration'
)


def config(*links: dict) -> Config:
    return Config.model_validate(
        {"clusters": CLUSTERS, "links": [{"topics": [each["source"]], **each} for each in links]}
    )


A, B, D = ({"source": each, "target": "c"} for each in "abd")
ELSEWHERE = {"source": "a", "target": "d"}


@pytest.mark.parametrize(
    ("links", "shown", "states", "says"),
    [
        ([A], 1, {}, "To go back: `drkit failback --to a`"),
        ([A], 1, {"silent": True}, "Once a answers: `drkit failback --to a`"),
        ([A], 1, {"for_good": True}, GOOD),
        ([A, B], 2, {}, "To go back: `drkit failback`"),
        ([A, B, ELSEWHERE], 2, {}, "To go back: `drkit failback --link 'a->c' --link 'b->c'`"),
        ([A, ELSEWHERE], 1, {}, "To go back: `drkit failback --link 'a->c'`"),
    ],
)
def test_the_command_brings_back_these_links_and_no_other(links, shown, states, says):
    read = config(*links)
    assert way_back([MovedLink(each.link(), **states) for each in read.links[:shown]], read) == says


def test_links_that_go_back_differently_are_told_apart():
    read = config(A, {**B, "filter": "shop:kept"}, D)
    a, b, d = (each.link() for each in read.links)
    assert b.alters
    said = way_back([MovedLink(a, for_good=True), MovedLink(b), MovedLink(d, silent=True)], read)
    plain, altered, turned = said.split("; ", 1)[0], said, said.rsplit("; ", 1)[1]
    assert plain == "d->c: Once d answers: `drkit failback --to d`"
    assert "b->c: To go back: " in altered
    assert "`drkit fence --lift --cluster b --yes --link 'b->c'`" in altered
    assert turned == f"a->c: {GOOD}"
