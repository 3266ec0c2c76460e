"""The turns that precede a sampled row in its conversation: as many as there are, each like another row's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

from fairlane.apps.estimate.sampling import Row, Sample
from fairlane.core.errors import TemplateError
from fairlane.model.run import Cell
from fairlane.pipeline.conversation import CONVERSATION, reads_turns, recalled, turn_of
from fairlane.pipeline.rendering import Call, Rendering

RENDERED_TURNS = 500
"""Turns that are rendered one after another; a longer conversation goes on with turns like the last."""

ROWS_TRIED = 3
"""Rows that are tried for a turn. If none can be rendered behind so many turns, the conversation ends."""


class EarlierTurns:
    """Renders conversations of each prompt and model; ``output`` makes a text as long as a call's answer.

    A conversation takes its rows from the sample, one after another, and each turn reads those before it.
    """

    def __init__(self, rendering: Rendering, sample: Sample, output: Callable[[Call], str]) -> None:
        self._rendering, self._sample, self._output = rendering, sample, output
        self._conversations: dict[tuple[int, int], list[dict[str, Any]]] = {}

    def recalled(self, cell: Cell, row: Row, turns: int) -> dict[str, Any] | None:
        """What an item's prompt reads of earlier items; ``turns`` of its conversation precede it.

        Raises `TemplateError` where no turn can be rendered so late: the prompt is too long by then.
        """
        if not self._rendering.spec.order.remembers:
            return None
        names = recalled(self._rendering, cell, row, {})
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
                    names = {**recalled(self._rendering, cell, row, {}), CONVERSATION: list(played)}
                    call = self._rendering.task(cell, row, names)
                except (TemplateError, ValueError):
                    continue
                if not call.messages:  # a function is told no turns
                    return [{}] * most
                played.append(turn_of(self._rendering, call, self._output(call)))
                break
            else:
                break
        return played
