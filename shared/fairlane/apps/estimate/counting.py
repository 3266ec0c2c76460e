"""Counts the calls that a run would make, from a sample of its dataset's rows. A row has as many earlier
turns as its conversation, each rendered from another row of the sample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice, product
from typing import Any

from fairlane.apps.estimate.sampling import Row, Sample
from fairlane.core.errors import TemplateError
from fairlane.model.choices import CONVERSATION
from fairlane.model.run import Cell
from fairlane.model.steps import Step
from fairlane.model.tokens import CHARS_PER_TOKEN, Estimate, estimate_call
from fairlane.pipeline.conversation import reads_turns, turn_of
from fairlane.pipeline.rendering import Call, Rendering, is_judged

SAMPLED_ITEMS = 2_000

RENDERED_TURNS = 500
"""Turns of a conversation that are rendered. Later ones count as much as the last of these."""

ROWS_TRIED = 3
"""Rows that are tried for the next turn. If none can be rendered, the conversation ends."""


@dataclass(slots=True)
class Use:
    """Calls and their tokens."""

    calls: float = 0.0
    input: float = 0.0
    output: float = 0.0

    def __iadd__(self, other: Use) -> Use:
        self.calls += other.calls
        self.input += other.input
        self.output += other.output
        return self


@dataclass(slots=True)
class Tally:
    """Counts for the whole run; ``uses`` are by model, and by the lane if the run states one."""

    uses: dict[tuple[str, str | None], Use] = field(default_factory=lambda: defaultdict(Use))
    tasks: float = 0.0
    evaluations: float = 0.0
    invalid: float = 0.0
    sampled: int = 0


class Counting:
    """Renders a sample's calls. ``answer_tokens``: length of an answer, by default the longest allowed."""

    def __init__(self, rendering: Rendering, sample: Sample, answer_tokens: int | None = None) -> None:
        self._rendering, self._sample, self._answer_tokens = rendering, sample, answer_tokens
        self._spec, self._tally = rendering.spec, Tally()
        self._earlier = EarlierTurns(rendering, sample, self._output)

    def count(self) -> Tally:
        """Render the sample; each rendered item stands for its share of all rows, and for its repetitions."""
        spec, tally = self._spec, self._tally
        variants = list(product(range(max(1, len(spec.prompts))), range(max(1, len(spec.models)))))
        rows = self._sample.rows[: max(1, SAMPLED_ITEMS // len(variants))]
        before = self._sample.turns or (0,) * len(rows)
        if not rows:
            return tally
        times = self._sample.count / len(rows) * spec.repetitions
        for (row, turns), (prompt, model) in product(zip(rows, before, strict=False), variants):
            tally.sampled += 1
            output = self._task(Cell(row=0, prompt=prompt, model=model, repetition=0), row, turns, times)
            if output is None:
                tally.invalid += times
            else:
                self._evaluations(row, output, times)
        self._sessions()
        return tally

    def _task(self, cell: Cell, row: Row, turns: int, times: float) -> str | None:
        """The item's output: the row's own, or a placeholder of the expected length. ``None`` if it has none.

        ``turns``: how many turns of its conversation precede it.
        """
        spec = self._spec
        if spec.output_field is not None:
            given = row.get(spec.output_field)
            return given if given is None or isinstance(given, str) else str(given)
        try:
            call = self._rendering.task(cell, row, self._earlier.recalled(cell, row, turns))
        except (TemplateError, ValueError):
            return None
        self._book(call.model, call.tokens, spec.lane, times)
        self._tally.tasks += times
        return self._output(call)

    def _output(self, call: Call) -> str:
        """A text as long as the call's answer."""
        return "x" * (CHARS_PER_TOKEN * self._answer(call.tokens).output)

    def _evaluations(self, row: Row, output: str, times: float) -> None:
        for step in self._asked(row):
            try:
                call = self._rendering.evaluation(step, row, output)
            except TemplateError:
                continue
            self._book(call.model, call.tokens, step.lane, times)
            self._tally.evaluations += times

    def _asked(self, row: Row) -> Iterator[Step]:
        """The evaluations of a row's items that call a model, if every batch call scores all its criteria."""
        for step in self._spec.evals:
            alone = step.model.partition(":")[0] in self._rendering.plan.unstructured
            if is_judged(step, row) and not (step.batch and alone) and (alone or not step.after):
                yield step

    def _sessions(self) -> None:
        """Count the calls for sessions, each of which has the mean number of rows.

        If that is more than were sampled, a prompt has as many more tokens.
        """
        spec, sample = self._spec, self._sample
        sessions = spec.sessions or sample.sessions
        if not spec.session_evals or not sessions:
            return
        answer = self._answer(estimate_call([], spec.params))
        size = max(1, round(sample.count / sessions))
        turns = [
            {"row": dict(row), "output": "x" * (CHARS_PER_TOKEN * answer.output)}
            for row in sample.rows[:size]
        ]
        grown = size / max(1, len(turns))
        for step in spec.session_evals:
            try:
                call = self._rendering.session(step, turns)
            except TemplateError:
                continue
            times = sessions * spec.cells_per_row
            tokens = call.tokens._replace(input=round(call.tokens.input * grown))
            self._book(call.model, tokens, step.lane, times)
            self._tally.evaluations += times

    def _book(self, model: str, tokens: Estimate, lane: str | None, times: float) -> None:
        expected = self._answer(tokens)
        self._tally.uses[model, lane] += Use(times, expected.input * times, expected.output * times)

    def _answer(self, tokens: Estimate) -> Estimate:
        if self._answer_tokens is None:
            return tokens
        return tokens._replace(output=min(tokens.output, self._answer_tokens))


class EarlierTurns:
    """Renders conversations of each prompt and model; ``output`` makes a text as long as a call's answer.

    A conversation takes its rows from the sample, one after another, and each turn reads those before it.
    """

    def __init__(self, rendering: Rendering, sample: Sample, output: Callable[[Call], str]) -> None:
        self._rendering, self._sample, self._output = rendering, sample, output
        self._conversations: dict[tuple[int, int], list[dict[str, Any]]] = {}

    def recalled(self, cell: Cell, row: Row, turns: int) -> dict[str, Any] | None:
        """What an item's prompt reads of earlier items; ``turns`` of its conversation precede it. Raises
        `TemplateError` where no prompt can be rendered after so many turns: it would be too long.
        """
        if not self._rendering.spec.order.remembers:
            return None
        names: dict[str, Any] = {CONVERSATION: []} if self._rendering.spec.order.conversation else {}
        if turns and reads_turns(self._rendering, cell):
            names[CONVERSATION] = self._before(cell, turns)
        return names

    def _before(self, cell: Cell, turns: int) -> list[dict[str, Any]]:
        key = cell.prompt, cell.model
        if key not in self._conversations:
            most = min(RENDERED_TURNS, max(self._sample.turns, default=0))
            self._conversations[key] = self._play(cell, most)
        played = self._conversations[key]
        if len(played) < min(turns, RENDERED_TURNS):
            raise TemplateError("conversation", f"no turn can be rendered behind {len(played):,} others")
        return played[:turns] + [played[-1]] * (turns - len(played))

    def _play(self, cell: Cell, most: int) -> list[dict[str, Any]]:
        played: list[dict[str, Any]] = []
        rows = cycle(self._sample.rows)
        while len(played) < most:
            for row in islice(rows, ROWS_TRIED):
                try:
                    names = {CONVERSATION: list(played)}
                    call = self._rendering.task(cell, row, names)
                except (TemplateError, ValueError):
                    continue
                if not call.messages:  # a function gets no earlier turns
                    return [{}] * most
                played.append(turn_of(self._rendering, call, self._output(call)))
                break
            else:
                break
        return played
