"""The rate of a backlog, in simulated targets: by clocks and chances of the test's own."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from drkit.mirror.engine.pacing.catch_up_rate import LOWEST, CatchUpRate
from drkit.model.statistics import quantile
from drkit.model.topology import CatchUpPolicy

MIB = 1024 * 1024
_EVERY = 0.01
_OVER = 0.1


@dataclass
class World:
    """A target whose answers are the slower the more is copied to it: of `capacity` bytes a second, nothing is left."""

    policy: CatchUpPolicy = field(default_factory=CatchUpPolicy)
    usual: float = 0.001
    capacity: float = 400 * MIB
    supply: float = 10_000 * MIB
    at: float = 1_000.0
    seen: list[tuple[float, float, float]] = field(default_factory=list)  # when, how slow, bytes a second

    def __post_init__(self) -> None:
        self.rate = CatchUpRate(self.policy, lambda: self.at)
        self._chance = random.Random(7)  # noqa: S311 - a simulation
        self._next = self._copied = 0.0

    def run(self, seconds: float) -> None:
        """Copy as fast as may be, and tell each answer."""
        until = self.at + seconds
        while self.at < until:
            self.at += _EVERY
            self._copied *= 1 - _EVERY / _OVER
            while self._next <= self.at:
                size = min(self.rate.most_at_once or MIB, int(self.supply * _EVERY) or 1)
                self._copied += size
                self._next = max(self._next, self.at - _EVERY) + max(self.rate.take(size), size / self.supply)
            lately = self._copied / _OVER
            load = min(0.98, lately / self.capacity)
            slow = self.usual * (0.5 + self._chance.expovariate(2)) / (1 - load)
            self.rate.answered(slow)
            self.seen.append((self.at, slow, lately))

    def lately(self, seconds: float) -> tuple[float, float]:
        """The 99th percentile of the answers' times, and the mean of bytes a second, of the last seconds."""
        found = [each for each in self.seen if each[0] > self.at - seconds]
        slow = quantile(sorted(each[1] for each in found), 0.99)
        assert slow is not None
        return slow, sum(each[2] for each in found) / len(found)


def in_use(**kwargs: object) -> World:
    world = World(**kwargs)  # type: ignore[arg-type]
    world.rate.use(True)
    return world


def test_where_nobody_else_uses_the_target_there_is_no_limit() -> None:
    world = World()
    world.run(3)
    assert not world.rate.limits
    assert world.rate.rate is None
    assert world.rate.most_at_once is None
    assert world.rate.take(10**9) == 0.0
    assert world.rate.latency is None


def test_it_is_copied_fast_without_the_targets_users_feeling_it() -> None:
    world = in_use()
    world.run(60)
    allowed = world.rate._allowed
    assert allowed is not None
    slow, rate = world.lately(40)
    assert slow < 1.25 * allowed
    assert rate > 0.1 * world.capacity


def test_a_target_that_suffers_has_the_rate_lowered_and_one_that_recovers_raised() -> None:
    world = in_use()
    world.run(20)
    _, before = world.lately(5)
    world.capacity /= 10
    world.run(3)
    _, during = world.lately(1)
    world.capacity *= 10
    world.run(20)
    _, after = world.lately(3)
    assert during < before / 2
    assert after > 1.5 * during


def test_a_target_that_is_slow_by_itself_is_not_held_to_what_it_did_before() -> None:
    world = in_use()
    world.run(20)
    before = world.rate._allowed
    world.usual *= 3
    world.run(150)
    after = world.rate._allowed
    assert before is not None
    assert after is not None
    assert after > 2 * before
    assert world.lately(20)[1] > 10 * LOWEST


def test_next_to_nothing_is_copied_while_the_undisturbed_target_is_looked_at() -> None:
    world = in_use()
    world.run(0.5)
    assert world.rate.rate == LOWEST
    assert world.rate._allowed is None
    world.run(1.5)
    assert world.rate.rate is not None
    assert world.rate.rate > LOWEST
    assert world.rate._allowed is not None


def test_it_is_looked_at_again_every_half_minute() -> None:
    world = in_use()
    world.run(10)
    rests = 0
    for _ in range(700):
        world.run(0.1)
        rests += world.rate.rate == LOWEST
    assert 10 <= rests <= 22, "two looks of about 0.8 s in 70 s"


def test_a_rate_that_nobody_used_is_not_taken_for_harmless() -> None:
    world = in_use(supply=5 * MIB)
    world.run(20)
    assert world.rate.rate is not None
    assert world.rate.rate < 30 * MIB


def test_some_of_a_backlog_is_always_copied() -> None:
    world = in_use()
    world.run(10)
    world.usual = 5.0
    world.run(10)
    assert world.rate.rate == LOWEST


def test_what_comes_up_on_the_source_is_copied_whatever_the_target_does() -> None:
    world = in_use()
    for _ in range(200):
        world.rate.grew(0.1 * 20 * MIB)
        world.usual = 5.0
        world.run(0.1)
    assert world.rate.rate is not None
    assert 21 * MIB < world.rate.rate <= 25 * MIB
    assert world.lately(3)[1] > 20 * MIB
    world.run(8)
    assert world.rate.rate < 10 * MIB


@pytest.mark.parametrize("used", [False, True])
def test_a_workers_share_of_the_links_own_limit_holds_always(used: bool) -> None:
    world = World()
    world.rate.use(used)
    world.rate.bound(3 * MIB)
    world.run(20)
    assert world.lately(10)[1] < 3.3 * MIB
    world.rate.bound(None)
    assert world.rate.limits is used


def test_a_worker_too_busy_to_look_slows_down() -> None:
    world = in_use()
    world.run(10)
    before = world.rate.rate
    for _ in range(300):
        world.at += _EVERY
        world.rate.answered(None)
    assert before is not None
    assert world.rate.rate is not None
    assert world.rate.rate < before / 2


@pytest.mark.parametrize(
    ("usual", "allowed"),
    [
        (0.0001, 0.0011),  # noise
        (0.003, 0.006),
        (0.008, 0.01),
        (0.05, 0.06),  # slower than what is allowed, without drkit
    ],
)
def test_how_slow_an_answer_may_be(usual: float, allowed: float) -> None:
    at = [0.0]
    rate = CatchUpRate(CatchUpPolicy(), lambda: at[0])
    rate.use(True)
    for _ in range(90):
        at[0] += _EVERY
        rate.answered(usual)
    assert rate._allowed == pytest.approx(allowed)
