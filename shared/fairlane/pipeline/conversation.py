"""The memory of a serial run: outputs and conversations of earlier items, for the prompts of later ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fairlane.core.errors import TemplateError
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import Cell
from fairlane.model.sessions import key_of
from fairlane.pipeline.rendering import Call, Rendering

CONVERSATION = "_conversation"
"""The variable with the turns before an item: a list of ``{"prompt", "input", "output"}``."""

_REGISTER = "register:"
_CHANGED = "changed"
_ASKED = "asked:"


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
        names[CONVERSATION] = _turns(_conversation(rendering, cell, row), stored)
    return names


def remembered(
    rendering: Rendering,
    cell: Cell,
    row: Mapping[str, Any],
    call: Call,
    output: str,
    stored: Mapping[bytes, bytes],
) -> dict[str, str]:
    """The fields of the run's memory that an item's output changes.

    An item is no turn where its row belongs to no conversation, or its prompt reads none. Its output has no
    name where the template of the name needs a field that the row lacks: no item can read it then.
    """
    fields: dict[str, str] = {}
    with suppress(TemplateError):
        if name := rendering.register(row):
            fields[f"{_REGISTER}{name}"] = output
    conversation = _conversation(rendering, cell, row)
    if conversation is not None and call.messages and reads_turns(rendering, cell):
        turns = [*_turns(conversation, stored), turn_of(call, output)]
        fields[conversation] = json.dumps(turns, ensure_ascii=False)
    return fields


def turn_of(call: Call, output: str) -> dict[str, Any]:
    """What prompts of later turns read of a call with messages, and of its output."""
    return {"prompt": call.messages, "input": call.messages[-1].get("content"), "output": output}


def changed_field(rendering: Rendering, cell: Cell, row: Mapping[str, Any]) -> str | None:
    """The field of the run's memory which says that later items read other outputs than in the continued run.

    A stored output may be read by all of them, and a conversation by its own turns. ``None``: no later item
    reads this one's output.
    """
    if rendering.spec.order.store_output_as is not None:
        return _CHANGED
    conversation = _conversation(rendering, cell, row)
    return None if conversation is None else f"{_CHANGED}:{conversation}"


def read_fields(rendering: Rendering, cell: Cell, row: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The fields of the run's memory that an item reads; ``None``: all, as it may read any stored output."""
    if rendering.spec.order.store_output_as is not None:
        return None
    conversation = _conversation(rendering, cell, row)
    if conversation is None:
        return ()
    return conversation, f"{_ASKED}{conversation}", f"{_CHANGED}:{conversation}"


def turn_asked(
    rendering: Rendering, cell: Cell, row: Mapping[str, Any], stored: Mapping[bytes, bytes]
) -> dict[str, str]:
    """The field of the run's memory which says that an item is fed as the next turn of its conversation.

    It has the bytes of the turns before it, and its row's number from 1. Whatever becomes of the item, those
    bytes grow only if it has an output. Empty for an item that is no turn, or that a missing turn precedes.
    """
    conversation = _next_turn(rendering, cell, row)
    if conversation is None or missing_turn(rendering, cell, row, stored) is not None:
        return {}
    turns = len(stored.get(conversation.encode(), b""))
    return {f"{_ASKED}{conversation}": json.dumps([turns, cell.row + 1])}


def missing_turn(
    rendering: Rendering, cell: Cell, row: Mapping[str, Any], stored: Mapping[bytes, bytes]
) -> str | None:
    """Why an item is not called: its conversation lacks an earlier turn. ``None`` if it lacks none."""
    conversation = _next_turn(rendering, cell, row)
    asked = None if conversation is None else stored.get(f"{_ASKED}{conversation}".encode())
    if conversation is None or asked is None:
        return None
    turns, number = json.loads(asked)
    if len(stored.get(conversation.encode(), b"")) > turns:
        return None
    return (
        f"its conversation lacks an earlier turn: row {number:,} has no output. Continue the run to ask "
        "again from there"
    )


def _turns(conversation: str | None, stored: Mapping[bytes, bytes]) -> list[dict[str, Any]]:
    text = None if conversation is None else stored.get(conversation.encode())
    turns: list[dict[str, Any]] = json.loads(text) if text else []
    return turns


def _next_turn(rendering: Rendering, cell: Cell, row: Mapping[str, Any]) -> str | None:
    """The conversation that an item is a turn of: a function is told no turns, and stores none."""
    spec = rendering.spec
    if not spec.order.conversation or not spec.models or spec.models[cell.model].startswith(f"{FUNCTIONS}:"):
        return None
    return _conversation(rendering, cell, row) if reads_turns(rendering, cell) else None


def reads_turns(rendering: Rendering, cell: Cell) -> bool:
    """Whether an item's prompt can read a conversation: a template has no other way to name it."""
    prompts = rendering.spec.prompts
    return bool(prompts) and any(CONVERSATION in message.content for message in prompts[cell.prompt])


def _conversation(rendering: Rendering, cell: Cell, row: Mapping[str, Any]) -> str | None:
    """The field of a conversation: one per prompt, model, repetition and value of the conversation field.

    ``None`` for a row that belongs to none: without that value it has no turns before it, and none after.
    """
    order = rendering.spec.order
    if not order.conversation:
        return None
    key = ""
    if (field := order.conversation_field) is not None:
        if row.get(field) is None:
            return None
        key = key_of(row[field])
    return f"conversation:{cell.prompt}.{cell.model}.{cell.repetition}:{key}"
