"""The output of a record as assertions see it, after all transforms, and the result of an assertion."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.programs.programs import Programs, is_program, split_reference
from fairlane.apps.promptfoo.reading.places import is_number
from fairlane.apps.promptfoo.reading.providers import CALLED, Provider
from fairlane.core.figures import whole
from fairlane.core.json_answers import json_or
from fairlane.model.record import Record


class CheckError(Exception):
    """An assertion cannot be checked on this output; the message says why."""


@dataclass(frozen=True, slots=True)
class Result:
    """Whether an output passed, its score, and why. ``named`` are scores of further metrics."""

    passed: bool
    score: float
    reason: str = ""
    named: Mapping[str, float] = field(default_factory=dict)


def points_of(score: Any) -> float | None:
    """The score that a program or a model gave, a number or a truth value; ``None`` for anything else."""
    return float(score) if isinstance(score, bool) or is_number(score) else None


def met(passed: bool, reason: str = "") -> Result:
    """A result of 1 or 0."""
    return Result(passed, float(passed), "" if passed else reason)


@dataclass(frozen=True, slots=True)
class Subject:
    """One output to check. ``output`` is a text or JSON, ``answered`` what the test's transform gets.

    ``prompt`` is the rendered prompt, ``variables`` those of the test, ``cost`` dollars or ``None``.
    """

    output: Any
    answered: Any
    prompt: str
    variables: Mapping[str, Any]
    record: Record
    provider: Provider
    cost: float | None = None
    test: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The output as a text: JSON where it is none."""
        return as_text(self.output)

    def context(self, config: Any = None) -> dict[str, Any]:
        """The context that programs get beside the output."""
        record = self.record
        usage = record.usage
        tokens = {"prompt": usage.input_tokens, "completion": usage.output_tokens, "total": usage.total}
        response = {
            "output": self.answered,
            "raw": record.output,
            "cached": record.cached,
            "tokenUsage": {name: each or 0 for name, each in tokens.items()},
            "finishReason": record.finish_reason,
            **({"cost": self.cost} if self.cost is not None else {}),
        }
        found = {
            "prompt": self.prompt,
            "vars": dict(self.variables),
            "test": dict(self.test),
            "provider": {"id": self.provider.identity, "label": self.provider.label},
            "providerResponse": response,
            "metadata": {},
        }
        return found | ({"config": config} if config is not None else {})


def as_text(value: Any) -> str:
    """A value as JavaScript's ``JSON.stringify`` writes it; a text as it is."""
    if isinstance(value, str):
        return value
    return json.dumps(_whole(value), ensure_ascii=False, separators=(",", ":"))


def _whole(value: Any) -> Any:
    """Whole floats as integers: JavaScript writes 1.0 as 1."""
    if isinstance(value, float):
        return whole(value)
    if isinstance(value, Mapping):
        return {name: _whole(each) for name, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list) else value


def shaped(record: Record, provider: Provider) -> Any:
    """The output as promptfoo gives it to assertions: calls of tools and structured answers as JSON."""
    text = record.output or ""
    if record.row.get(CALLED, {}).get("json"):
        return json.loads(text)
    if "tools" in provider.params and (calls := _calls(text)) is not None:
        said, made = calls
        return _as_provider(said, made, provider)
    form = provider.params.get("response_format")
    if isinstance(form, Mapping) and form.get("type") == "json_schema":
        return json_or(text, text)
    return text


def _calls(text: str) -> tuple[str, list[dict[str, Any]]] | None:
    """The text and the calls in an output that has calls of tools."""
    match json_or(text):
        case {"text": text, "tool_calls": [_, *_] as calls, **rest} if not rest and all(map(_is_call, calls)):
            return str(text), list(calls)
    return None


def _is_call(call: Any) -> bool:
    return isinstance(call, dict) and {"name", "arguments"} <= call.keys()


def _as_provider(said: str, calls: list[dict[str, Any]], provider: Provider) -> Any:
    """Calls in the form of the provider's answers: Gemini's, Anthropic's, or OpenAI's."""
    kind = provider.identity.partition(":")[0]
    if kind in ("google", "vertex", "palm", "gemini"):
        parts = [{"functionCall": {"name": call["name"], "args": call["arguments"]}} for call in calls]
        return [*([{"text": said}] if said else []), *parts]
    if kind == "anthropic":
        used = [{"type": "tool_use", "name": call["name"], "input": call["arguments"]} for call in calls]
        written = [json.dumps(each, ensure_ascii=False) for each in used]
        return "\n\n".join([said, *written] if said else written)
    functions = [{"name": call["name"], "arguments": as_text(call["arguments"])} for call in calls]
    if provider.legacy:
        return functions[0]
    made = [
        {"id": f"call_{number}", "type": "function", "function": each}
        for number, each in enumerate(functions, start=1)
    ]
    return {"role": "assistant", "content": said, "tool_calls": made} if said else made


def transformed(
    code: str, value: Any, context: Mapping[str, Any], programs: Programs, *, name: str = "output"
) -> Any:
    """Transform a value by code or by a file's function. Raises `ProgramError`."""
    if is_program(code) and code.startswith("file://"):
        path, function = located(code)
        found = programs.file(path, function, [value, dict(context)], default="get_transform")
    else:
        found = programs.code("javascript", code, (name, "context"), (value, dict(context)))
    if found is None:
        raise ProgramError("the transform returned nothing")
    return found


def located(reference: str) -> tuple[Path, str | None]:
    """The file and the function of a reference whose path is absolute."""
    path, function = split_reference(reference)
    return Path(path), function
