"""The memory of a serial run: outputs and conversations of earlier items, for the prompts of later ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fairlane.model.run import Cell
from fairlane.pipeline.rendering import Call, Rendering

CONVERSATION = "_conversation"
"""The variable with the turns before an item: a list of ``{"prompt", "input", "output"}``."""

_REGISTER = "register:"
_CHANGED = "changed"


def recalled(
    rendering: Rendering, cell: Cell, row: Mapping[str, Any], stored: Mapping[bytes, bytes]
) -> dict[str, Any]:
    """The variables that an item's prompt has beside its row; ``stored`` is the run's memory in Redis."""
    names: dict[str, Any] = {
        field.decode().removeprefix(_REGISTER): value.decode()
        for field, value in stored.items()
        if field.startswith(_REGISTER.encode())
    }
    if rendering.spec.order.conversation:
        names[CONVERSATION] = _turns(rendering, cell, row, stored)
    return names


def remembered(
    rendering: Rendering,
    cell: Cell,
    row: Mapping[str, Any],
    call: Call,
    output: str,
    stored: Mapping[bytes, bytes],
) -> dict[str, str]:
    """The fields of the run's memory that an item's output changes. Raises `TemplateError`."""
    fields: dict[str, str] = {}
    if name := rendering.register(row):
        fields[f"{_REGISTER}{name}"] = output
    if rendering.spec.order.conversation and call.messages:
        asked = call.messages[-1].get("content")
        turn = {"prompt": call.messages, "input": asked, "output": output}
        turns = [*_turns(rendering, cell, row, stored), turn]
        fields[_conversation(rendering, cell, row)] = json.dumps(turns, ensure_ascii=False)
    return fields


def changed_field(rendering: Rendering, cell: Cell, row: Mapping[str, Any]) -> str:
    """The field of the run's memory which says that later items read other outputs than in the continued run.

    A stored output may be read by all of them, and a conversation by its own turns.
    """
    if rendering.spec.order.store_output_as is not None:
        return _CHANGED
    return f"{_CHANGED}:{_conversation(rendering, cell, row)}"


def read_fields(rendering: Rendering, cell: Cell, row: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The fields of the run's memory that an item reads; ``None``: all, as it may read any stored output."""
    if rendering.spec.order.store_output_as is not None:
        return None
    return _conversation(rendering, cell, row), changed_field(rendering, cell, row)


def _turns(
    rendering: Rendering, cell: Cell, row: Mapping[str, Any], stored: Mapping[bytes, bytes]
) -> list[dict[str, Any]]:
    text = stored.get(_conversation(rendering, cell, row).encode())
    turns: list[dict[str, Any]] = json.loads(text) if text else []
    return turns


def _conversation(rendering: Rendering, cell: Cell, row: Mapping[str, Any]) -> str:
    """The field of a conversation: one per prompt, model, repetition and value of the conversation field."""
    field = rendering.spec.order.conversation_field
    value = "" if field is None else json.dumps(row.get(field), sort_keys=True, ensure_ascii=False)
    return f"conversation:{cell.prompt}.{cell.model}.{cell.repetition}:{value}"
