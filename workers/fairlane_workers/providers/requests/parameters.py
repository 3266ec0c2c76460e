"""Reads a run's parameters in OpenAI's vocabulary, for protocols that have other names for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fairlane_workers.providers.dialect import UnmappableError

ToolChoice: TypeAlias = Literal["auto", "none", "required"]

_CHOICES: Mapping[str, ToolChoice] = {"auto": "auto", "none": "none", "required": "required"}
_NAMES = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
_READ = frozenset(
    {*_NAMES, "max_tokens", "max_completion_tokens", "stop", "response_format", "tools", "tool_choice"}
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; ``schema`` is the JSON schema of its arguments.

    ``strict``: the provider enforces it.
    """

    name: str
    description: str | None
    schema: Mapping[str, Any]
    strict: bool = False


@dataclass(frozen=True, slots=True)
class AnswerSchema:
    """The JSON schema that the provider enforces on an answer."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters that providers have in common. ``None`` and empty: not given. ``rest``: all others.

    ``json``: the answer must be a JSON object. ``tool_choice`` may name one tool instead.
    """

    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    seed: int | None
    presence_penalty: float | None
    frequency_penalty: float | None
    stop: tuple[str, ...]
    schema: AnswerSchema | None
    json: bool
    tools: tuple[Tool, ...]
    tool_choice: ToolChoice | Tool | None
    rest: Mapping[str, Any]

    @property
    def sampling(self) -> dict[str, Any]:
        """Those that tune how an answer is sampled, under OpenAI's names."""
        return {name: getattr(self, name) for name in _NAMES}

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Parameters:
        """Read a run's ``params``. Raises `UnmappableError` for a value of another form than OpenAI's."""
        tools = tuple(_tool(number, each) for number, each in enumerate(_listed(params, "tools")))
        schema, json = _response_format(params.get("response_format"))
        most = params.get("max_completion_tokens")
        return cls(
            max_tokens=params.get("max_tokens") if most is None else most,
            **{name: params.get(name) for name in _NAMES},
            stop=stop_words(params.get("stop")),
            schema=schema,
            json=json,
            tools=tools,
            tool_choice=_tool_choice(params.get("tool_choice"), tools),
            rest={name: value for name, value in params.items() if name not in _READ},
        )


def _listed(params: Mapping[str, Any], name: str) -> list[Any]:
    value = params.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise UnmappableError(f"params.{name}: a list is expected, got {type(value).__name__}")
    return value


def stop_words(value: object) -> tuple[str, ...]:
    """The texts at which an answer stops. Raises `UnmappableError` for anything else."""
    if value is None:
        return ()
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UnmappableError("params.stop: a text or a list of texts is expected")
    return tuple(words)


def _tool(number: int, value: object) -> Tool:
    function = value.get("function") if isinstance(value, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str):
        raise UnmappableError(f'params.tools[{number}]: {{"type": "function", "function": …}} is expected')
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(schema, Mapping):
        raise UnmappableError(f"params.tools[{number}].function.parameters: an object is expected")
    described = function.get("description")
    strict = function.get("strict") is True
    return Tool(name, described if isinstance(described, str) else None, schema, strict)


def _tool_choice(value: object, tools: tuple[Tool, ...]) -> ToolChoice | Tool | None:
    match value:
        case None:
            return None
        case str(choice) if choice in _CHOICES:
            return _CHOICES[choice]
        case {"function": {"name": str(wanted)}}:
            for tool in tools:
                if tool.name == wanted:
                    return tool
            raise UnmappableError(f"params.tool_choice: there is no tool {wanted!r}")
    raise UnmappableError('params.tool_choice: "auto", "none", "required" or a function is expected')


def _response_format(value: object) -> tuple[AnswerSchema | None, bool]:
    match value:
        case None | {"type": "text"}:
            return None, False
        case {"type": "json_object"}:
            return None, True
        case {"type": "json_schema", "json_schema": {"schema": dict(schema), **spec}}:
            name = spec.get("name")
            return AnswerSchema(name if isinstance(name, str) and name else "answer", schema), False
    raise UnmappableError('params.response_format: "text", "json_object" or "json_schema" is expected')
