"""The adversary in short: a few seeds in every run of the tests, more of them and every planted defect under `long`.

`make adversary ARGS="--seed 1 --runs 100"` is the long form (docs/soak.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from chaos.adversary.__main__ import Adversary
from chaos.adversary.plan import make
from chaos.adversary.world import BROKER_CONFIG
from drkit.lab import Lab
from tests.support.clusters.guard import Guard
from tests.support.collection.sampling import sampled

pytestmark = pytest.mark.lab

SEEDS = (165, 2000, 2009)
MORE_SEEDS = (*range(1_000, 1_010), 15, 26, 104)
"""The last three found something once."""

Play = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Play]:
    """Plays a seed (or some of its actions) on a lab of the adversary's own: what was found, and what was said."""
    folder = tmp_path_factory.mktemp("adversary")
    lab_guard.watch(folder / "lab")
    lab = Lab.up(folder / "lab", brokers=1, store="sqlite", broker_config=BROKER_CONFIG)

    def played(seed: int, only: tuple[int, ...] = (), plant: str = "-") -> tuple[list[str], list[str]]:
        plan = make(seed)
        adversary = Adversary(lab, folder, plant=plant)
        found = adversary.play(plan.only(only) if only else plan)
        return found, [*plan.lines(), *adversary.said]

    yield played
    lab.down()


@pytest.mark.parametrize("seed", sampled("the adversary", SEEDS, 1))
def test_a_seed_finds_nothing(play: Play, seed: int) -> None:
    found, said = play(seed)
    assert not found, "\n".join(said)


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_seeds_find_nothing(play: Play, seed: int) -> None:
    found, said = play(seed)
    assert not found, "\n".join(said)


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "seed", "only"),
    [
        ("epochs_not_compared", 9, (1, 4)),
        ("filler_too_large", 247, (0, 1, 2)),
        ("ends_not_looked_at", 41, (0, 4)),
        ("appends_without_a_condition", 49, (11,)),
        ("trimmed_without_proof", 640, (0, 1, 2)),
        ("filler_stays", 29, (0, 1, 2, 3)),
        ("filler_stays_at_failover", 102_044, (0, 1, 2)),
        ("filler_known_by_its_bytes", 353, (0, 1, 2)),
        ("compressed_by_the_target", 100_019, (4,)),
        ("digests_believed", 3305, (0, 2)),
        ("problems_not_heeded", 9, (1, 4)),
        ("ends_always_stable", 6, (0, 2)),
        ("purges_not_seen", 51, (0, 3, 4)),
        ("held_not_compared", 6492, (0, 4)),
        ("read_past_what_is_refused", 10034, (3,)),
        ("away_not_looked_at", 20437, (0, 3)),
    ],
)
def test_a_planted_defect_is_found(play: Play, plant: str, seed: int, only: tuple[int, ...]) -> None:
    """The same actions find nothing without it."""
    found, said = play(seed, only)
    assert not found, "\n".join(said)
    found, said = play(seed, only, plant)
    assert found, "\n".join(said)
