"""More runs in the middle of everything: scored as sessions, stopped by their bounds, and continued."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane import llm_judge
from tests.faults.checker import JUDGED
from tests.faults.kinds import ANY
from tests.faults.runs import TALK
from tests.faults.schedule import Timed
from tests.faults.stage import Stage, fault

TALKS = 6
BOUNDED_ROWS, BUDGET, DURATION_S = 120, 400, 4.0
"""Each answer costs some 20 tokens, and the lane starts 12 calls a second: no such run completes."""

CONTINUED_ROWS = 60
MANY_ROWS = 100_000


@fault("sessions")
def submit_sessions(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """A run whose rows belong together in fours; each four are judged as a whole."""
    workload, name, rows = stage.workload, f"sessions-{timed.at_s:g}", TALKS * TALK
    template = JUDGED + "{% for turn in session %}{{ turn.output }}; {% endfor %}"
    judge = llm_judge(workload.lane("b"), template, {"yes": 1}, level="session")
    asked = workload.questions(name, rows)
    talks = tuple(asked[first : first + TALK] for first in range(0, rows, TALK))
    workload.submit_another(name, "blue", "d", rows, {"talks": talks}, session="talk", evaluators=[judge])
    yield (ANY,)


@fault("budget")
def submit_with_budget(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """A run that may not use the tokens that it needs."""
    stage.workload.submit_another(
        f"budget-{timed.at_s:g}",
        "red",
        "d",
        BOUNDED_ROWS,
        {"ending": "stopped"},
        budget_tokens=BUDGET,
        params={"max_tokens": 32},
    )
    yield (ANY,)


@fault("duration")
def submit_with_duration(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """A run that has less time than it needs."""
    stage.workload.submit_another(
        f"duration-{timed.at_s:g}",
        "blue",
        "d",
        BOUNDED_ROWS,
        {"ending": "timed_out"},
        max_duration=DURATION_S,
    )
    yield (ANY,)


@fault("continued")
def continue_cancelled(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """A run is cancelled in the end, and another one completes it."""
    old = stage.workload.submit_another(
        f"continued-{timed.at_s:g}", "blue", "d", CONTINUED_ROWS, {"ending": "cancelled", "continued": True}
    )
    yield (ANY,)
    stage.insist(old.run.cancel)
    stage.insist(lambda: stage.workload.continue_run(old))


@fault("many_rows")
def submit_many(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """A run of many rows."""
    stage.workload.submit_many(MANY_ROWS)
    yield (ANY,)
