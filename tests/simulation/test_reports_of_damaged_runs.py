"""A report waits for its run's key that has another type, and loses no paid output."""

from __future__ import annotations

import pytest

from fairlane.evaluators.builders import llm_judge
from fairlane.model.outcome import Success
from fairlane.model.run import RunRef, RunState
from fairlane.model.tokens import Usage
from fairlane.store.read.mistyped import OF_RUN
from tests.support.direct import DirectRedis
from tests.support.whole import deployed


@pytest.mark.parametrize("part", ["results", "jobs", "done", "finished", "run_lanes"])
def test_a_report_waits_until_the_key_is_deleted(real_redis: DirectRedis, part: str) -> None:
    with deployed(real_redis, lambda worker, request: (2.0, Success("yes", Usage(10, 5)))) as whole:
        run = whole.client("search").submit(
            [{"q": "1"}],
            "{{ q }}",
            model="sim:fast",
            evaluators=[llm_judge("sim:fast", "{{ output }}", {"yes": 1.0})],
        )
        whole.run_for(1)
        key = getattr(whole.keys, part)(RunRef("search", run.id))
        real_redis.delete(key)
        real_redis.rpush(key, "x") if OF_RUN[part] == "string" else real_redis.set(key, "x")
        whole.run_for(30)
        real_redis.delete(key)
        assert run.wait(60).state is RunState.COMPLETED
        assert [record.output for record in run.results()] == ["yes"]
        assert len(whole.calls) == 2
