"""A run's summary: scores with their uncertainty, failures by error, tokens and cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fairlane.client.views.html import Cell, note, table
from fairlane.core.figures import counted, dollars, figure
from fairlane.model.job import JobState
from fairlane.model.run import RunState
from fairlane.model.run_status import RoleTime, Scores

TASK = "task"
"""The value of `Failure.step` for a task."""


@dataclass(frozen=True, slots=True)
class Failure:
    """``count`` items, ``item`` first, failed for the same reason at ``step``, an evaluator or `TASK`.

    What differs from call to call, like a request's id, is left out of ``error``.
    """

    step: str
    error: str
    count: int
    item: int


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens of a model's ``calls`` that reported them; ``cost_usd`` is ``None`` where it has no price.

    Of the input, ``cached_tokens`` were read from the provider's cache, and ``written_tokens`` written to it.
    All of these include ``unkept`` answers, which were paid for but gave no output or score: refusals, and
    answers without the requested form. They had ``unkept_tokens`` and cost ``unkept_usd``.
    """

    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    written_tokens: int = 0
    unkept: int = 0
    unkept_tokens: int = 0
    unkept_usd: float | None = None

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Endings:
    """How many ``outputs`` a model gave, and how many of them were ``cut`` at the token limit, are ``empty``,
    or are refusals (``refused``). ``prompts_cut``: how many prompts its server seems not to have read whole,
    by its count of tokens.
    """

    outputs: int
    cut: int
    empty: int
    refused: int = 0
    prompts_cut: int = 0

    def in_words(self) -> str:
        """The counts that qualify scores: ``"312 of 1,000 cut at max_tokens, 4 empty"``."""
        kinds = (
            (self.cut, "cut at max_tokens"),
            (self.empty, "empty"),
            (self.refused, "refused"),
            (self.prompts_cut, "to prompts that the server seems to have cut"),
        )
        counted = [(count, kind) for count, kind in kinds if count]
        return ", ".join(
            f"{count:,}{'' if number else f' of {self.outputs:,}'} {kind}"
            for number, (count, kind) in enumerate(counted)
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """A run's records, summed up.

    ``scores`` are by evaluator, ``scores_by_model`` by the task's model, then by evaluator.
    ``session_scores`` are those of whole sessions; a run in the archive has none. ``tasks`` and
    ``evaluations`` say by model what the calls used, also of answers that were not kept; an answer from the
    cache (``cached`` tasks) used nothing. Failures are in order of their count. ``predict`` is the time of
    tasks and ``score`` that of evaluations, if the run's state still has it. ``unreported`` counts by model
    the calls that were answered without a number of tokens: no cost covers them. ``endings`` has the models
    some of whose outputs were cut, are empty or are refusals, which most evaluators score like wrong ones.
    ``served`` maps a requested model to those that answered, where the provider names another; it is empty
    once Redis has neither the run nor its stub.
    """

    run: str
    name: str
    state: RunState
    items: int
    by_state: Mapping[JobState, int]
    cached: int
    scores: Mapping[str, Scores]
    scores_by_model: Mapping[str, Mapping[str, Scores]]
    session_scores: Mapping[str, Scores]
    failures: tuple[Failure, ...]
    tasks: tuple[Spending, ...]
    evaluations: tuple[Spending, ...]
    predict: RoleTime | None = None
    score: RoleTime | None = None
    unreported: Mapping[str, int] = field(default_factory=dict)
    endings: Mapping[str, Endings] = field(default_factory=dict)
    served: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def task_tokens(self) -> int:
        """Tokens of all tasks."""
        return sum(each.tokens for each in self.tasks)

    @property
    def evaluation_tokens(self) -> int:
        """Tokens of all evaluations."""
        return sum(each.tokens for each in self.evaluations)

    @property
    def cost_usd(self) -> float | None:
        """Dollars for all that has a price; ``None`` where nothing has one."""
        known = [each.cost_usd for each in (*self.tasks, *self.evaluations) if each.cost_usd is not None]
        return math.fsum(known) if known else None

    @property
    def waste(self) -> str:
        """What was paid for answers that were not kept, in words; empty where all were kept."""
        spent = [each for each in (*self.tasks, *self.evaluations) if each.unkept]
        if not spent:
            return ""
        answers = sum(each.unkept for each in spent)
        tokens = sum(each.unkept_tokens for each in spent)
        known = [each.unkept_usd for each in spent if each.unkept_usd is not None]
        cost = f", {dollars(math.fsum(known))}" if known else ""
        return f"{counted(answers, 'answer')}, {counted(tokens, 'token')}{cost}"

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models that used tokens and have no price."""
        spent = (*self.tasks, *self.evaluations)
        return tuple(sorted({each.model for each in spent if each.cost_usd is None}))

    @property
    def gaps(self) -> str:
        """What the cost leaves out, in words; empty where it covers everything."""
        calls = sum(self.unreported.values())
        unpriced = f"without {', '.join(self.unpriced)}" if self.unpriced else ""
        reported = f"{counted(calls, 'call')} reported no tokens" if calls else ""
        return ", ".join(filter(None, (unpriced, reported)))

    def _repr_html_(self) -> str:
        return _tables(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything above, ready for JSON."""
        return {
            **asdict(self),
            "task_tokens": self.task_tokens,
            "evaluation_tokens": self.evaluation_tokens,
            "cost_usd": self.cost_usd,
            "unpriced": list(self.unpriced),
        }


def _tables(summary: Summary) -> str:
    """Items, scores, failures and use, for a notebook."""
    states = ", ".join(f"{count:,} {state}" for state, count in summary.by_state.items())
    items = f"{counted(summary.items, 'item')}: {states or 'none'}."
    parts = [note(f"{summary.name} ({summary.run}): {summary.state}. {items}")]
    columns = ["evaluator", "mean", "± standard error", "scored", "missing"]
    if summary.scores:
        parts.append(table("Scores", columns, [_scores(name, each) for name, each in summary.scores.items()]))
    if len(summary.scores_by_model) > 1:
        rows = [
            [model, *_scores(name, each)]
            for model, scores in summary.scores_by_model.items()
            for name, each in scores.items()
        ]
        parts.append(table("Scores by model", ["model", *columns], rows))
    if summary.session_scores:
        rows = [_scores(name, each) for name, each in summary.session_scores.items()]
        parts.append(table("Scores of sessions", columns, rows))
    parts += [note(f"Outputs of {model}: {each.in_words()}.") for model, each in summary.endings.items()]
    parts += [note(f"{asked} was answered by {', '.join(names)}.") for asked, names in summary.served.items()]
    if summary.failures:
        failed: list[Sequence[Cell]] = [
            [each.count, each.step, each.error, each.item] for each in summary.failures
        ]
        parts.append(table("Failures", ["items", "step", "error", "first item"], failed))
    spent = [*summary.tasks, *summary.evaluations]
    if spent:
        used: list[Sequence[Cell]] = [
            [each.model, each.calls, each.input_tokens, each.output_tokens, dollars(each.cost_usd)]
            for each in spent
        ]
        parts.append(table("Use", ["model", "calls", "input tokens", "output tokens", "cost"], used))
    if summary.waste:
        parts.append(note(f"Of these, not kept: {summary.waste}."))
    if summary.gaps:
        parts.append(note(f"The cost: {summary.gaps}."))
    return "".join(parts)


def _scores(name: str, scores: Scores) -> list[Cell]:
    return [name, figure(scores.mean), figure(scores.standard_error, 2), scores.of_rows, scores.missing]
