"""The evaluation jobs of an item or a session, in a fixed order."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fairlane.model.evaluators import (
    Agent,
    Criterion,
    EvaluatorSpec,
    FunctionScorer,
    Judge,
    Level,
    Similarity,
)
from fairlane.model.lane import FUNCTIONS

ALL_DIMENSIONS = "*"
"""The ``dimension`` of a batch call in logs; no criterion can have this name."""


@dataclass(frozen=True, slots=True)
class Step:
    """One evaluation job. Step 0 of an item is its task; the end of step ``after`` makes this one ready.

    ``name`` is the name of its score. A batch call (``batch``) has no score: the steps of its criteria come
    after it, and are recorded with it if its answer scores them.
    """

    name: str
    evaluator: Judge | Agent | FunctionScorer | Similarity
    model: str
    lane: str | None = None
    criterion: Criterion | None = None
    batch: bool = False
    after: int = 0

    @property
    def scored(self) -> bool:
        """Whether it produces a score."""
        return not self.batch

    @property
    def calls_model(self) -> bool:
        """Whether it calls a model, whose tokens count; a function has none."""
        return not self.model.startswith(f"{FUNCTIONS}:")

    @property
    def labels(self) -> dict[str, str]:
        """Further fields of log lines about an agent's step; other steps have none."""
        if not isinstance(self.evaluator, Agent):
            return {}
        dimension = ALL_DIMENSIONS if self.criterion is None else self.criterion.id
        return {"agent": self.evaluator.name, "dimension": dimension}


def item_steps(evaluators: Iterable[EvaluatorSpec]) -> tuple[Step, ...]:
    """Steps 1, 2, … of every item."""
    steps: list[Step] = []
    for evaluator in evaluators:
        if isinstance(evaluator, Agent):
            steps.extend(_agent_steps(evaluator, len(steps) + 1))
        else:
            steps.extend(_single_step(evaluator, "item"))
    return tuple(steps)


def session_steps(evaluators: Iterable[EvaluatorSpec]) -> tuple[Step, ...]:
    """The steps of every session."""
    return tuple(step for evaluator in evaluators for step in _single_step(evaluator, "session"))


def _single_step(evaluator: EvaluatorSpec, level: Level) -> Iterator[Step]:
    """The one step of an evaluator, if it scores this level with a job."""
    if isinstance(evaluator, Judge) and evaluator.level == level:
        yield Step(evaluator.name, evaluator, evaluator.model)
    elif isinstance(evaluator, FunctionScorer) and evaluator.level == level:
        yield Step(evaluator.name, evaluator, f"{FUNCTIONS}:{evaluator.function}", evaluator.lane)
    elif isinstance(evaluator, Similarity) and level == "item":
        yield Step(evaluator.name, evaluator, evaluator.model)


def _agent_steps(agent: Agent, first: int) -> Iterator[Step]:
    if agent.batching:
        yield Step(agent.name, agent, agent.model, batch=True)
    after = first if agent.batching else 0
    for criterion in agent.criteria:
        yield Step(f"{agent.name}.{criterion.id}", agent, agent.model, criterion=criterion, after=after)
