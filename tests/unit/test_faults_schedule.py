"""Schedules of faults: drawn from seeds, printed, read back, and shortened."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.faults.checker import Violation
from tests.faults.kinds import BROKER, HANGS, KINDS, ONE_SERVER, SENTINELS, TIME, USUAL, playable
from tests.faults.schedule import BEGIN_S, END_S, MOST_FAULTS, Schedule, Timed, alone, draw, hanging, parse
from tests.faults.shrink import shrink
from tests.faults.stage import FAULTS

SEEDS = range(300)


def test_a_seed_always_gives_the_same_schedule_and_others_give_others() -> None:
    assert [draw(seed) for seed in SEEDS] == [draw(seed) for seed in SEEDS]
    assert len({draw(seed).faults for seed in SEEDS}) == len(SEEDS)


def test_a_printed_schedule_is_read_back() -> None:
    for seed in SEEDS:
        assert parse(str(draw(seed))) == draw(seed)


def test_every_kind_is_drawn_and_can_be_played() -> None:
    import tests.faults.play  # noqa: F401 - it registers all faults

    assert {fault.name for seed in SEEDS for fault in draw(seed).faults} == set(USUAL)
    assert set(FAULTS) == set(KINDS)


def test_a_deployment_meets_only_what_it_can() -> None:
    assert set(playable(ONE_SERVER, BROKER)) | set(playable(SENTINELS, TIME)) == set(KINDS)
    for seed in SEEDS:
        assert {fault.name for fault in draw(seed, playable(SENTINELS)).faults} <= set(playable(SENTINELS))
    assert "redis_kill" not in playable(SENTINELS)
    assert "broker_partition" not in USUAL


def test_faults_lie_within_bounds_and_hit_what_their_kind_may() -> None:
    for seed in SEEDS:
        faults = draw(seed).faults
        assert 1 <= len(faults) <= MOST_FAULTS
        for fault in faults:
            kind = KINDS[fault.name]
            assert BEGIN_S <= fault.at_s <= END_S
            assert kind.seconds[0] <= fault.seconds <= kind.seconds[1]
            assert fault.target in kind.targets


def test_no_two_faults_act_on_redis_at_the_same_time() -> None:
    for seed in SEEDS:
        redis = [fault for fault in draw(seed).faults if KINDS[fault.name].uses == "redis"]
        for one, other in pairwise(redis):
            assert one.until_s < other.at_s


def test_a_schedule_of_one_kind_plays_it_twice() -> None:
    for name in KINDS:
        first, second = alone(1, name).faults
        assert first.name == second.name == name
        assert first.at_s < second.at_s


def test_standstills_follow_each_other_without_an_overlap() -> None:
    for seed in range(20):
        many, *hangs = hanging(seed).faults
        assert many.name == "many_rows"
        assert {fault.name for fault in hangs} <= set(HANGS)
        for one, other in pairwise([many, *hangs]):
            assert one.until_s < other.at_s


@pytest.mark.parametrize("line", ["seed:1 flood=any@1+2", "worker_kill", "seed:one"])
def test_a_line_that_is_no_schedule_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(line)


def _five() -> Schedule:
    return Schedule(1, tuple(Timed(float(n), 1.0, "worker_kill", "worker-1") for n in range(5)))


def test_shrinking_keeps_only_what_the_violation_needs() -> None:
    guilty = _five().faults[3]

    def violations(schedule: Schedule) -> list[Violation]:
        return [Violation("left", "a lease")] if guilty in schedule.faults else []

    shortest, plays = shrink(_five(), ["left"], violations)
    assert shortest.faults == (guilty,)
    assert plays == 6


def test_shrinking_ends_after_its_plays_and_ignores_other_violations() -> None:
    shortest, plays = shrink(_five(), ["left"], lambda _: [Violation("order", "")], most_plays=3)
    assert (shortest, plays) == (_five(), 3)


def test_while_the_machine_stands_still_nothing_else_is_stopped() -> None:
    others = {"redis", "workers", "schedulers", ""}
    for seed in SEEDS:
        faults = draw(seed).faults
        for pause in (fault for fault in faults if fault.name == "machine_pause"):
            for other in faults:
                together = pause.at_s < other.until_s and other.at_s < pause.until_s
                assert other is pause or not together or KINDS[other.name].uses not in others
