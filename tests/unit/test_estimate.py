"""What a run is expected to take: a sample's calls, made whole, against what lanes allow and models cost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import fakeredis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from fairlane.apps.estimate import counting, sampling
from fairlane.apps.estimate.estimating import estimate
from fairlane.apps.estimate.sampling import VALUES_KEPT, Distinct, take_sample
from fairlane.client.deployment import Deployment as Context
from fairlane.client.views.forecast import Forecast, LaneForecast
from fairlane.config.connections.connection import Connection
from fairlane.config.sections import RedisSettings
from fairlane.config.settings import Settings
from fairlane.core.errors import TemplateError
from fairlane.evaluators.builders import llm_judge
from fairlane.model.choices import Message
from fairlane.model.evaluators import Agent, Criterion, EvaluatorSpec, FunctionScorer
from fairlane.model.run import Bounds, CacheChoice, Order, RunSpec
from fairlane.model.tokens import TOKENS_PER_MESSAGE, Price
from fairlane.store.write.workers import WorkerInfo
from tests.support.deployment import Deployment
from tests.support.records import spec_of
from tests.support.stage import Stage

SIM = Connection(protocol="openai", base_url="http://localhost/v1")
BATCHED = Agent(
    name="critic",
    model="sim:judge",
    template="{{ output }}",
    criteria=(Criterion(id="style", description="?"), Criterion(id="facts", description="?")),
    batching=True,
)


class Scene:
    """A deployment with lanes and workers, and a client's connection context."""

    def __init__(self, redis: Redis) -> None:
        self.deployment: Deployment = Stage(redis).deployment
        self.context = Context(
            Settings(redis=RedisSettings(deployment="test"), connections={"sim": SIM}),
            redis,
            self.deployment.clock,
        )

    def configure(self, **settings: Any) -> None:
        """Change the settings in force."""
        changed = self.context.settings.model_copy(update=settings)
        self.context = replace(self.context, settings=changed)

    def worker(self, slots: int = 10, *lanes: str) -> None:
        info = WorkerInfo("w1", slots, lanes, "1", 1, "here", 0)
        call = self.deployment.workers.beat("w1", info, [], 1000, changed=True, now_ms=self.deployment.now_ms)
        call.run(self.context.redis)

    def forecast(self, spec: RunSpec, rows: int = 100, **options: Any) -> Forecast:
        return estimate(self.context, spec, take_sample(rows_of(rows)), **options)


def rows_of(count: int) -> list[dict[str, Any]]:
    return [{"question": "q" * 40, "n": n} for n in range(count)]


def judge(**fields: Any) -> EvaluatorSpec:
    made = llm_judge("sim:judge", "{{ output }}", {"yes": 1, "no": 0}, name="judge", params={"max_tokens": 1})
    return made.model_copy(update=fields)


def lane(forecast: Forecast, name: str) -> LaneForecast:
    return next(each for each in forecast.lanes if each.lane == name)


@pytest.fixture(scope="module")
def scene_of_all() -> Scene:
    return Scene(fakeredis.FakeRedis(server=fakeredis.FakeServer()))


@pytest.fixture
def scene(fake_redis: Redis) -> Scene:
    return Scene(fake_redis)


def test_calls_and_tokens_are_those_of_the_whole_product(scene: Scene) -> None:
    spec = spec_of([judge()], params={"max_tokens": 100}, repetitions=3, models=("sim:a", "sim:b"))
    found = scene.forecast(spec, rows=1000)
    assert (found.rows, found.items, found.sampled, found.invalid) == (1000, 6000, 400, 0)
    assert (found.tasks, found.evaluations, found.calls) == (6000, 6000, 12000)
    prompt = 10 + 2 * TOKENS_PER_MESSAGE
    judged = 100 + 2 * TOKENS_PER_MESSAGE
    assert [(each.model, each.calls, each.input_tokens, each.output_tokens) for each in found.models] == [
        ("sim:a", 3000, 3000 * prompt, 3000 * 100),
        ("sim:b", 3000, 3000 * prompt, 3000 * 100),
        ("sim:judge", 6000, 6000 * judged, 6000),
    ]
    assert found.tokens == sum(each.tokens for each in found.lanes)


def test_cost_is_by_the_prices_of_the_settings(scene: Scene) -> None:
    prices = {"sim:fast": Price(input=1.0, output=10.0)}
    scene.configure(prices=prices)
    found = scene.forecast(spec_of([judge()], params={"max_tokens": 100}))
    assert found.cost_usd == pytest.approx(100 * (16 * 1.0 + 100 * 10.0) / 1e6)
    assert found.unpriced == ("sim:judge",)


def test_an_answers_length_may_be_stated(scene: Scene) -> None:
    spec = spec_of([judge()], params={"max_tokens": 100})
    short = scene.forecast(spec, answer_tokens=20)
    assert [each.output_tokens for each in short.models] == [100 * 20, 100]
    assert scene.forecast(spec, answer_tokens=500).tokens == scene.forecast(spec).tokens


def test_the_slowest_lane_decides_how_long_it_takes(scene: Scene) -> None:
    scene.deployment.lane("sim:fast", requests_per_minute=600)
    scene.deployment.lane("sim:judge", requests_per_minute=60)
    scene.worker(10, "sim:fast", "sim:judge")
    found = scene.forecast(spec_of([judge()]), rows=600)
    assert lane(found, "sim:fast").seconds == pytest.approx(60, rel=0.05)
    assert lane(found, "sim:judge").seconds == pytest.approx(600, rel=0.05)
    assert found.seconds == lane(found, "sim:judge").seconds
    assert (lane(found, "sim:judge").limited_by, lane(found, "sim:judge").source) == (
        "requests",
        "configured",
    )
    assert found.notes == ()


def test_tokens_may_be_what_limits(scene: Scene) -> None:
    scene.deployment.lane("sim:fast", requests_per_minute=6000, tokens_per_minute=11_600)
    scene.worker(10, "sim:fast")
    found = scene.forecast(spec_of(params={"max_tokens": 100}), rows=1000)
    assert lane(found, "sim:fast").limited_by == "tokens"
    assert found.seconds == pytest.approx(600, rel=0.05)


def test_a_lane_that_nobody_knows_is_reported_by_where_it_starts(scene: Scene) -> None:
    scene.worker()
    found = scene.forecast(spec_of(models=("sim:new",)), rows=600)
    assert (lane(found, "sim:new").source, found.seconds) == ("starting", pytest.approx(60, rel=0.05))
    assert any("sim:new: nothing has limited it yet" in note for note in found.notes)


def test_what_no_call_has_reported_is_not_guessed(scene: Scene) -> None:
    scene.worker(10, "sim:fast")
    found = scene.forecast(spec_of())
    assert (lane(found, "sim:fast").seconds, lane(found, "sim:fast").limited_by, found.seconds) == (None,) * 3
    assert any("nothing limits it" in note for note in found.notes)


def test_a_paused_lane_has_no_time_and_says_why(scene: Scene) -> None:
    scene.deployment.lane("sim:fast", requests_per_minute=60)
    scene.deployment.lanes.pause("sim:fast")
    scene.worker(10, "sim:fast")
    found = scene.forecast(spec_of())
    assert found.seconds is None
    assert "sim:fast is paused by an operator" in found.notes


def test_without_a_worker_it_says_so_and_shows_the_time_all_the_same(scene: Scene) -> None:
    scene.deployment.lane("sim:fast", requests_per_minute=60)
    found = scene.forecast(spec_of())
    assert found.seconds == pytest.approx(100, rel=0.05)
    assert "no worker is up" in found.notes[0]


def test_calls_of_other_runs_hear_of(scene: Scene) -> None:
    scene.deployment.queued_lane(jobs=30, lane="sim:fast", requests_per_minute=60)
    scene.worker(10, "sim:fast")
    assert lane(scene.forecast(spec_of()), "sim:fast").queued == 30


@pytest.mark.parametrize(
    ("bounds", "seconds"),
    [(Bounds(task_rate=0.5), 200), (Bounds(delay=3.0), 300), (Bounds(task_rate=50.0), 100)],
)
def test_a_runs_own_bounds_make_it_longer(scene: Scene, bounds: Bounds, seconds: float) -> None:
    scene.deployment.lane("sim:fast", requests_per_minute=60)
    scene.worker(10, "sim:fast")
    assert scene.forecast(spec_of(bounds=bounds)).seconds == pytest.approx(seconds, rel=0.05)


def test_bounds_that_will_end_a_run_early_hear_of(scene: Scene) -> None:
    scene.deployment.lane("sim:fast", requests_per_minute=60)
    scene.worker(10, "sim:fast")
    scene.configure(prices={"sim:*": Price(input=1.0, output=10.0)})
    bounds = Bounds(max_duration=50, budget_tokens=1000, budget_usd=0.01)
    notes = " ".join(scene.forecast(spec_of(bounds=bounds, cache=CacheChoice(mode="read"))).notes)
    for name in ("max_duration", "budget_tokens", "budget_usd", "cache"):
        assert name in notes
    assert scene.forecast(spec_of(order=Order(serial=True))).notes == ()


def test_items_that_cannot_be_rendered_are_counted_as_invalid(scene: Scene) -> None:
    rows = [{"question": "q"} if n % 2 else {"other": "q"} for n in range(100)]
    found = estimate(scene.context, spec_of([judge()]), take_sample(rows))
    assert (found.invalid, found.tasks, found.evaluations) == (50, 50, 50)
    assert any("50 of 100 items cannot be rendered" in note for note in found.notes)


READS_TURNS = "{% for turn in _conversation %}{{ turn.output }}{% endfor %}{{ question }}"
BY_WHO = Order(turns=True, conversation=True, conversation_field="who")


def chat_spec(order: Order = BY_WHO, prompt: str = READS_TURNS, **fields: Any) -> RunSpec:
    fields.setdefault("params", {"max_tokens": 25})
    return spec_of(prompts=((Message(role="user", content=prompt),),), order=order, **fields)


@given(
    turns=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    alone=st.integers(0, 3),
    repetitions=st.integers(1, 3),
    shuffled=st.randoms(use_true_random=False),
)
def test_a_turn_is_as_long_as_those_before_it_make_it(
    scene_of_all: Scene, turns: list[int], alone: int, repetitions: int, shuffled: random.Random
) -> None:
    rows = [{"question": "q" * 40, "who": who} for who, count in enumerate(turns) for _ in range(count)]
    rows += [{"question": "q" * 40} for _ in range(alone)]
    shuffled.shuffle(rows)
    spec = chat_spec(repetitions=repetitions)
    found = estimate(scene_of_all.context, spec, take_sample(rows, order=spec.order))
    earlier = sum(count * (count - 1) // 2 for count in turns)
    one = 10 + 2 * TOKENS_PER_MESSAGE
    assert (found.tasks, found.invalid) == (len(rows) * repetitions, 0)
    assert found.models[0].input_tokens == repetitions * (len(rows) * one + earlier * 25)


def test_what_a_turn_was_asked_is_part_of_a_prompt_that_reads_it(scene: Scene) -> None:
    spec = chat_spec(Order(turns=True, conversation=True), READS_TURNS.replace("turn.output", "turn.input"))
    found = estimate(scene.context, spec, take_sample(rows_of(4), order=spec.order))
    assert found.models[0].input_tokens == 10 * (1 + 2 + 4 + 8) + 4 * 2 * TOKENS_PER_MESSAGE


def test_a_conversation_that_is_longer_than_what_is_rendered_goes_on_alike(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "RENDERED_TURNS", 20)
    spec = chat_spec(Order(turns=True, conversation=True))
    found = estimate(scene.context, spec, take_sample(rows_of(150), order=spec.order))
    assert found.models[0].input_tokens == 150 * (10 + 2 * TOKENS_PER_MESSAGE) + 25 * 150 * 149 // 2


def test_turns_that_no_longer_fit_into_a_prompt_are_invalid(scene: Scene) -> None:
    spec = chat_spec(Order(turns=True, conversation=True), READS_TURNS.replace("turn.output", "turn.input"))
    found = estimate(scene.context, spec, take_sample(rows_of(100), order=spec.order))
    assert 75 < found.invalid < 90


def test_the_longest_conversation_may_decide_how_long_it_takes(scene: Scene) -> None:
    rows = [{"question": "q", "who": 0 if n < 30 else n} for n in range(60)]
    sample = take_sample(rows, order=BY_WHO)
    assert (sample.longest, max(sample.turns)) == (30, 29)
    scene.deployment.lane("sim:fast", requests_per_minute=60_000)
    scene.deployment.redis.hset(
        scene.deployment.keys.lane("sim:fast"), "token_ms", "100"
    )  # 20 tokens to the first one
    scene.worker(1_000, "sim:fast")
    found = estimate(scene.context, chat_spec(repetitions=2), sample)
    assert found.seconds == pytest.approx(30 * 2.0)


def test_a_sample_takes_no_rows_whose_turns_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "CONVERSATIONS_COUNTED", 3)
    rows = [{"who": n % 6, "n": n} for n in range(60)]
    sample = take_sample(rows, order=BY_WHO)
    assert {row["who"] for row in sample.rows} == {0, 1, 2}
    assert (sample.count, sample.longest, sorted(sample.turns)) == (60, 10, sorted([*range(10)] * 3))


def test_a_template_that_does_not_compile_is_refused(scene: Scene) -> None:
    with pytest.raises(TemplateError):
        scene.forecast(spec_of([judge(template="{{ output")]))


def test_a_batch_is_one_call_and_without_a_schema_one_for_each_criterion(scene: Scene) -> None:
    assert scene.forecast(spec_of([BATCHED])).evaluations == 100
    unstructured = SIM.model_copy(update={"structured_output": False})
    scene.configure(connections={"sim": unstructured})
    assert scene.forecast(spec_of([BATCHED])).evaluations == 200
    alone = BATCHED.model_copy(update={"batching": False})
    assert scene.forecast(spec_of([alone])).evaluations == 200


def test_given_outputs_need_no_task_calls(scene: Scene) -> None:
    spec = spec_of([judge()], prompts=(), models=(), output_field="question")
    found = scene.forecast(spec)
    assert (found.tasks, found.evaluations) == (0, 100)
    assert [each.model for each in found.models] == ["sim:judge"]


def test_rows_that_are_not_judged_are_not_counted(scene: Scene) -> None:
    rows = [{"question": "q", "check": n % 4 == 0} for n in range(100)]
    assert estimate(scene.context, spec_of([judge(when="check")]), take_sample(rows)).evaluations == 25


def test_a_function_has_a_lane_of_its_own_and_costs_no_tokens(scene: Scene) -> None:
    scorer = FunctionScorer(name="fn", function="mine.scores:brevity")
    found = scene.forecast(spec_of([scorer]))
    assert lane(found, "python:mine.scores:brevity").calls == 100
    assert lane(found, "python:mine.scores:brevity").tokens == 0
    assert found.unpriced == ("sim:fast",)


def test_sessions_are_evaluated_once_in_each_cell(scene: Scene) -> None:
    spec = spec_of([judge(level="session", template="{{ session }}")], session_field="s", repetitions=2)
    rows = [{"question": "q", "s": n // 5} for n in range(100)]
    found = estimate(scene.context, spec, take_sample(rows, session_field="s"))
    assert (found.tasks, found.evaluations) == (200, 40)


def test_a_session_of_more_rows_than_are_sampled_has_the_tokens_of_all(scene: Scene) -> None:
    shown = judge(level="session", template="{% for turn in session %}{{ turn.row.question }}{% endfor %}")
    spec, found = spec_of([shown], session_field="s"), list[int]()
    for count in (150, 3000):
        rows = [{"question": "q" * 400, "s": 1}] * count
        forecast = estimate(scene.context, spec, take_sample(rows, session_field="s"), answer_tokens=1)
        found.append(lane(forecast, "sim:judge").input_tokens)
    assert found[1] == pytest.approx(20 * found[0], rel=0.01)


def test_a_dataset_without_rows_takes_nothing(scene: Scene) -> None:
    found = scene.forecast(spec_of([judge()]), rows=0)
    assert (found.items, found.calls, found.tokens, found.seconds, found.lanes) == (0, 0, 0, 0.0, ())


def test_a_forecast_is_ready_for_json(scene: Scene) -> None:
    shown = scene.forecast(spec_of()).to_dict()
    assert (shown["calls"], shown["lanes"][0]["lane"], shown["cost_usd"]) == (100, "sim:fast", None)


def test_of_a_dataset_whose_size_is_stated_no_more_than_a_sample_is_read() -> None:
    def endless() -> Iterator[dict[str, Any]]:
        number = 0
        while True:
            yield {"n": number}
            number += 1

    sample = take_sample(endless(), 1_000_000, most=50)
    assert (len(sample.rows), sample.count, sample.rows[-1]["n"]) == (50, 1_000_000, 49)
    assert take_sample(rows_of(3), 100).count == 3


@given(st.integers(0, 400), st.integers(1, 50))
def test_a_sample_is_of_the_whole_dataset_and_the_same_each_time(count: int, most: int) -> None:
    sample = take_sample(rows_of(count), most=most)
    assert (sample.count, len(sample.rows)) == (count, min(count, most))
    assert sample == take_sample(rows_of(count), most=most)
    assert len({row["n"] for row in sample.rows}) == len(sample.rows)


def test_few_distinct_values_are_counted_exactly_and_many_at_about() -> None:
    for distinct in (0, 1, VALUES_KEPT - 1, 20_000):
        counter = Distinct()
        for number in range(max(distinct, 1) * 2):
            counter.add(number % distinct if distinct else None)
        assert counter.count == pytest.approx(distinct, rel=0.1 if distinct >= VALUES_KEPT else 0)
