"""Seed, model and ordinal alone determine a request's behaviour, with the configured probabilities."""

import math
import statistics
from collections import Counter

import pytest

from fairlane.lab.simulator.model.behaviour import Fault, draw, remaining_ms, share
from fairlane.testing import Faults, SimulatedModel

FLAKY = Faults(error_500=0.02, error_529=0.02, reset=0.01, reset_after_work=0.01, malformed=0.01)


def test_the_same_seed_model_and_ordinal_draw_the_same_behaviour() -> None:
    model = SimulatedModel(latency_sigma=0.4, output_tokens_stddev=9, faults=FLAKY)
    assert [draw(7, "fast", n, model) for n in range(50)] == [draw(7, "fast", n, model) for n in range(50)]


@pytest.mark.parametrize(("seed", "name"), [(8, "fast"), (7, "slow")])
def test_another_seed_or_model_draws_another_behaviour(seed: int, name: str) -> None:
    model = SimulatedModel(latency_sigma=0.4)
    assert draw(7, "fast", 0, model) != draw(seed, name, 0, model)


def test_adding_faults_changes_no_latency_and_no_length() -> None:
    calm = SimulatedModel(latency_sigma=0.4, output_tokens=100, output_tokens_stddev=30)
    flaky = calm.model_copy(update={"faults": FLAKY})
    for ordinal in range(50):
        one, other = draw(1, "fast", ordinal, calm), draw(1, "fast", ordinal, flaky)
        assert (one.latency_s, one.output_tokens) == (other.latency_s, other.output_tokens)


def test_the_latency_is_lognormal_around_its_median() -> None:
    model = SimulatedModel(latency_ms=500, latency_sigma=0.4)
    logs = [math.log(draw(3, "fast", n, model).latency_s / 0.5) for n in range(2000)]
    assert abs(statistics.median(logs)) < 0.05
    assert abs(statistics.stdev(logs) - 0.4) < 0.03


def test_without_spread_the_latency_is_constant() -> None:
    model = SimulatedModel(latency_ms=250)
    assert {draw(3, "fast", n, model).latency_s for n in range(20)} == {0.25}


def test_an_answer_has_at_least_one_token() -> None:
    model = SimulatedModel(output_tokens=1, output_tokens_stddev=50)
    assert min(draw(3, "fast", n, model).output_tokens for n in range(200)) == 1


def test_faults_occur_as_often_as_configured() -> None:
    each = 0.8 / len(Fault)
    faults = Faults(**{fault.value: each for fault in Fault})
    seen = Counter(draw(5, "fast", n, SimulatedModel(faults=faults)).fault for n in range(5000))
    for fault in Fault:
        assert abs(seen[fault] / 5000 - each) < 0.015
    assert abs(seen[None] / 5000 - 0.2) < 0.02


def test_a_fault_of_probability_1_hits_every_request() -> None:
    model = SimulatedModel(faults=Faults(hang=1))
    assert {draw(5, "fast", n, model).fault for n in range(100)} == {Fault.HANG}


def test_a_share_depends_on_its_seed_and_parts_alone() -> None:
    assert share(1, "a", "b") == share(1, "a", "b")
    assert len({share(1, "a", "b"), share(2, "a", "b"), share(1, "ab", ""), share(1, "b", "a")}) == 4
    assert 0 <= share(1) < 1


@pytest.mark.parametrize(
    ("elapsed_ms", "left_ms"), [(0, None), (999, None), (1000, 2500), (3499, 1), (3500, None), (9000, 500)]
)
def test_a_window_lasts_from_its_start_to_its_end(elapsed_ms: int, left_ms: int | None) -> None:
    assert remaining_ms([(1.0, 2.5), (9.0, 0.5)], elapsed_ms) == left_ms
