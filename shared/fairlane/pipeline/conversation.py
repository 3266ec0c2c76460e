"""The memory of a serial run: outputs and conversations of earlier items, for the prompts of later ones."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

from fairlane.core.errors import TemplateError
from fairlane.model.choices import CONVERSATION
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import Cell
from fairlane.model.sessions import key_of
from fairlane.pipeline.rendering import Call, Rendering, RunItem
from fairlane.templates.meter import ANSWER_SETTING, ROW_SETTING
from fairlane.templates.template import names_read

BYTES_PER_CHAR = 4
"""Most bytes of a character in UTF-8: a conversation has at most those of the plan's longest text."""

_CONVERSATION = "conversation:"
_REGISTER = "register:"
_CHANGED = "changed"
_ASKED = "asked:"


class _Head(NamedTuple):
    """Number and bytes of a conversation's turns: the value of its field if each turn has its own, too."""

    turns: int
    bytes: int


def recalled(item: RunItem, stored: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The variables that an item's prompt has besides its row; ``stored`` is the run's memory in Redis.

    Raises `TemplateError` if the earlier turns are too large, or one of them is gone.
    """
    names: dict[str, Any] = {}
    if item.spec.order.store_output_as is not None:
        names = {
            field.decode().removeprefix(_REGISTER): value.decode()
            for field, value in stored.items()
            if field.startswith(_REGISTER.encode())
        }
    if item.spec.order.conversation:
        names[CONVERSATION] = _turns(item.rendering, _conversation(item), stored)
    return names


def remembered(item: RunItem, call: Call, output: str, stored: Mapping[bytes, bytes]) -> dict[str, str]:
    """The fields of the run's memory that an item's output changes.

    An item is no turn if its row belongs to no conversation, or its prompt reads none. Its output has no
    name if the name's template needs a field that the row lacks: then no item can read it.
    """
    fields: dict[str, str] = {}
    with suppress(TemplateError):
        if name := item.rendering.register(item.row):
            fields[f"{_REGISTER}{name}"] = output
    conversation = _conversation(item)
    if conversation is not None and call.messages and reads_turns(item.rendering, item.cell):
        fields |= _with_turn(item.rendering, conversation, turn_of(item.rendering, call, output), stored)
    return fields


def turn_of(rendering: Rendering, call: Call, output: str) -> dict[str, Any]:
    """The parts of a call with messages, and of its output, that prompts of later turns read."""
    turn = {"prompt": call.messages, "input": call.messages[-1].get("content"), "output": output}
    return {name: turn[name] for name in rendering.spec.order.turn_fields}


def changed_field(item: RunItem) -> str | None:
    """The field of the run's memory that marks later items as reading other outputs than in the continued
    run.

    A stored output may be read by all of them, and a conversation by its own turns. ``None``: no later item
    reads this one's output.
    """
    if item.spec.order.store_output_as is not None:
        return _CHANGED
    conversation = _conversation(item)
    return None if conversation is None else f"{_CHANGED}:{conversation}"


def read_fields(item: RunItem) -> tuple[str, ...] | None:
    """The fields of the run's memory that an item reads: its conversation's first, which `turn_fields` needs.

    ``None``: all, as its prompt may read any stored output through ``row``.
    """
    fields, conversation = tuple[str, ...](), _conversation(item)
    if conversation is not None:
        fields = (conversation, f"{_ASKED}{conversation}", f"{_CHANGED}:{conversation}")
    if item.spec.order.store_output_as is None:
        return fields
    prompts = item.spec.prompts
    read = (names_read(each.content) for each in prompts[item.cell.prompt]) if prompts else ()
    names = frozenset[str]().union(*read)
    return None if "row" in names else (*fields, _CHANGED, *(f"{_REGISTER}{name}" for name in sorted(names)))


def turn_fields(
    rendering: Rendering, read: Sequence[str] | None, stored: Mapping[bytes, bytes]
) -> tuple[str, ...]:
    """The fields of the run's memory that have an item's earlier turns; ``read``: its `read_fields`.

    ``stored``: their values. Empty if the turns are in one field, or are too large to be read.
    """
    if not read or not read[0].startswith(_CONVERSATION) or not rendering.spec.keeps_turns_apart:
        return ()
    head = _head(stored.get(read[0].encode()))
    return tuple(_turn_names(read[0], head.turns)) if head.bytes <= _most_bytes(rendering) else ()


def turn_asked(item: RunItem, stored: Mapping[bytes, bytes]) -> dict[str, str]:
    """The field of the run's memory which notes that an item is fed as the next turn of its conversation.

    Its value is the number of earlier turns (or their bytes, if they are in one field) and the row's number
    from 1. That number grows only if the item gets an output: so a missing turn is noticed. Empty for an
    item that is no turn, or that a missing turn precedes.
    """
    conversation = _next_turn(item)
    if conversation is None or missing_turn(item, stored) is not None:
        return {}
    so_far = _so_far(item.rendering, conversation, stored)
    return {f"{_ASKED}{conversation}": json.dumps([so_far, item.cell.row + 1])}


def missing_turn(item: RunItem, stored: Mapping[bytes, bytes]) -> str | None:
    """Why an item is not called: its conversation lacks an earlier turn. ``None`` if it lacks none."""
    conversation = _next_turn(item)
    asked = None if conversation is None else stored.get(f"{_ASKED}{conversation}".encode())
    if conversation is None or asked is None:
        return None
    turns, number = json.loads(asked)
    if _so_far(item.rendering, conversation, stored) > turns:
        return None
    return (
        f"its conversation lacks an earlier turn: row {number:,} has no output. Continue the run to ask "
        "again from there"
    )


def _turns(
    rendering: Rendering, conversation: str | None, stored: Mapping[bytes, bytes]
) -> list[dict[str, Any]]:
    text = None if conversation is None else stored.get(conversation.encode())
    if conversation is None or not text:
        return []
    if not rendering.spec.keeps_turns_apart:
        turns: list[dict[str, Any]] = json.loads(text)
        return turns
    head, most = _head(text), _most_bytes(rendering)
    if head.bytes > most:
        raise TemplateError(
            CONVERSATION,
            f"the {head.turns:,} turns of this conversation have {head.bytes:,} bytes, more than {most:,}: "
            f"make conversations or answers shorter, or raise {ROW_SETTING} or {ANSWER_SETTING}",
        )
    texts = [stored.get(name.encode()) for name in _turn_names(conversation, head.turns)]
    if None in texts:
        raise TemplateError(CONVERSATION, "an earlier turn of this conversation is gone from Redis")
    return [json.loads(each) for each in texts if each is not None]


def _with_turn(
    rendering: Rendering, conversation: str, turn: Mapping[str, Any], stored: Mapping[bytes, bytes]
) -> dict[str, str]:
    """The fields that one more turn changes; with a field for each turn, no longer than that turn."""
    if not rendering.spec.keeps_turns_apart:
        turns = [*_turns(rendering, conversation, stored), turn]
        return {conversation: json.dumps(turns, ensure_ascii=False)}
    head, text = _head(stored.get(conversation.encode())), json.dumps(turn, ensure_ascii=False)
    (name,) = _turn_names(conversation, head.turns + 1, head.turns)
    return {name: text, conversation: json.dumps([head.turns + 1, head.bytes + len(text.encode())])}


def _turn_names(conversation: str, turns: int, first: int = 0) -> Iterator[str]:
    """The names of the fields of turns from ``first`` up to ``turns``."""
    digest = sha256(conversation.encode()).hexdigest()[:32]
    return (f"turn:{digest}:{number}" for number in range(first, turns))


def _head(text: bytes | None) -> _Head:
    return _Head(*json.loads(text)) if text else _Head(0, 0)


def _so_far(rendering: Rendering, conversation: str, stored: Mapping[bytes, bytes]) -> int:
    """The number that grows with each turn that has an output."""
    text = stored.get(conversation.encode())
    return _head(text).turns if rendering.spec.keeps_turns_apart else len(text or b"")


def _most_bytes(rendering: Rendering) -> int:
    return BYTES_PER_CHAR * rendering.plan.judged_chars


def _next_turn(item: RunItem) -> str | None:
    """The conversation that an item is a turn of; ``None`` for an item without one, and for a function's."""
    spec, cell = item.spec, item.cell
    if not spec.order.conversation or not spec.models or spec.models[cell.model].startswith(f"{FUNCTIONS}:"):
        return None
    return _conversation(item) if reads_turns(item.rendering, cell) else None


def reads_turns(rendering: Rendering, cell: Cell) -> bool:
    """Whether an item's prompt names the variable `CONVERSATION`."""
    prompts = rendering.spec.prompts
    return bool(prompts) and any(CONVERSATION in message.content for message in prompts[cell.prompt])


def _conversation(item: RunItem) -> str | None:
    """The field of a conversation: one per prompt, model, repetition and value of the conversation field.

    ``None`` for a row without that value: it belongs to no conversation.
    """
    order, cell = item.spec.order, item.cell
    if not order.conversation:
        return None
    key = ""
    if (field := order.conversation_field) is not None:
        if item.row.get(field) is None:
            return None
        key = key_of(item.row[field])
    return f"{_CONVERSATION}{cell.prompt}.{cell.model}.{cell.repetition}:{key}"
