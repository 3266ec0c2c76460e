"""Builds the body of a Converse request: messages as blocks, parameters in their sections."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.requests.media import IMAGES, PDF, Media
from fairlane_workers.providers.requests.messages import (
    Call,
    ChatMessage,
    NativePart,
    Part,
    Text,
    fitting_id,
    is_blank,
    read_messages,
    spoken,
)
from fairlane_workers.providers.requests.parameters import Parameters, Tool, ToolChoice
from fairlane_workers.providers.requests.vocabulary import without_openais

_IMAGES = {each: each.removeprefix("image/") for each in IMAGES}
_AUDIO = {f"audio/{each}": each for each in ("mp3", "wav", "aac", "flac", "ogg", "opus", "m4a", "webm")}
_OFFICE = "application/vnd.openxmlformats-officedocument"
_DOCUMENTS = {
    PDF: "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
    f"{_OFFICE}.wordprocessingml.document": "docx",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
}
_NO_NAME = re.compile(r"[^a-zA-Z0-9 ()\[\]-]+|(?<= ) +")
"""What a document's name may not have: anything but letters, digits, single spaces, hyphens and brackets."""
_LONGEST_NAME = 190
_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_FIXED = frozenset({"model", "modelId", "messages", "stream"})
_OWN = frozenset(
    {
        *("additionalModelRequestFields", "additionalModelResponseFieldPaths", "guardrailConfig"),
        *("inferenceConfig", "outputConfig", "performanceConfig", "projectIdentifier", "promptVariables"),
        *("requestMetadata", "serviceTier", "system", "toolConfig"),
    }
)
_CHOICES: Mapping[ToolChoice | None, Mapping[str, Any]] = {"auto": {"auto": {}}, "required": {"any": {}}}
_EMPTY: tuple[object, ...] = (None, {}, [])


def converse_body(request: Request) -> dict[str, Any]:
    """The body of a Converse request.

    ``top_k``, ``seed``, the penalties and whatever name is not Converse's own are the model's:
    ``additionalModelRequestFields``. Converse's own objects go before what is translated, field by field; a
    field that is ``None`` is left out. Raises `UnmappableError` for ``json_object``, which there is not.
    """
    asked = Parameters.of(request.params)
    if asked.json:
        raise UnmappableError("params.response_format: Converse has no json_object; give a json_schema")
    own = {name: value for name, value in asked.rest.items() if name in _OWN}
    messages = read_messages(request.messages)
    merged = {
        "system": _system(own.get("system"), messages),
        "inferenceConfig": _merged(_inference(asked), own.get("inferenceConfig")),
        "toolConfig": _merged(_tools(asked), own.get("toolConfig")),
        "outputConfig": _merged(_output(asked), own.get("outputConfig")),
        "additionalModelRequestFields": _merged(_further(asked), own.get("additionalModelRequestFields")),
    }
    given = {name: value for name, value in {**own, **merged}.items() if value not in _EMPTY}
    return {"messages": _turns(messages), **given}


def _turns(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """User and assistant in turns, as Converse requires: consecutive messages of one role become one.

    Results of tools are the user's.
    """
    turns: list[dict[str, Any]] = []
    for message in spoken(messages, "bedrock"):
        role = "user" if message.role == "tool" else message.role
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": []})
        turns[-1]["content"] += _blocks(message)
    names = set[str]()
    for turn in turns:
        for block in turn["content"]:
            match block:
                case {"document": {"name": str(name), **document}}:
                    block["document"] = {**document, "name": _unlike(names, name)}
    match turns[-1]:  # Claude goes on with no text that ends in blanks
        case {"role": "assistant", "content": [*_, {"text": str(text)} as last]}:
            last["text"] = text.rstrip()
    return turns


def _unlike(names: set[str], name: str) -> str:
    """A document's name, numbered if it is among ``names``, and added to them: Bedrock rejects equal ones."""
    numbered = (name if number == 1 else f"{name} ({number})" for number in count(1))
    free = next(each for each in numbered if each not in names)
    names.add(free)
    return free


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    said = [_block(part) for part in message.parts if not is_blank(part)]
    if message.role == "tool":
        return [{"toolResult": {"toolUseId": fitting_id(message.answers, _ID), "content": said}}]
    return [*said, *map(_call, message.calls)]


def _block(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"text": part.text}
        case NativePart():
            return dict(part.part)
        case Media(kind="image"):
            return {"image": {"format": _form(part, _IMAGES), "source": _source(part)}}
        case Media(kind="file"):
            name = _NO_NAME.sub("-", part.name or "document")[:_LONGEST_NAME]
            return {"document": {"format": _form(part, _DOCUMENTS), "name": name, "source": _source(part)}}
    return {"audio": {"format": _form(part, _AUDIO), "source": _source(part)}}


def _form(media: Media, forms: Mapping[str, str]) -> str:
    form = forms.get(media.media_type or "")
    if form is None:
        raise media.unmappable(
            "bedrock", f"takes {', '.join(forms)}, not {media.media_type or 'what has no type'}"
        )
    return form


def _source(media: Media) -> dict[str, Any]:
    if media.data is not None:
        return {"bytes": media.data}
    if media.url is not None and media.url.startswith("s3://"):
        return {"s3Location": {"uri": media.url}}
    raise media.unmappable("bedrock", 'loads nothing from the web: give "data:<type>;base64,…" or s3://…')


def _call(call: Call) -> dict[str, Any]:
    return {
        "toolUse": {"toolUseId": fitting_id(call.id, _ID), "name": call.name, "input": dict(call.arguments)}
    }


def _system(given: object, messages: Sequence[ChatMessage]) -> list[Any]:
    """The system text of the parameters, followed by that of the messages."""
    first = given if isinstance(given, list) else [{"text": given}] if given else []
    lifted = [part for message in messages if message.role == "system" for part in message.parts]
    return [*first, *(_block(part) for part in lifted if not is_blank(part))]


def _inference(asked: Parameters) -> dict[str, Any]:
    return {
        "maxTokens": asked.max_tokens,
        "temperature": asked.temperature,
        "topP": asked.top_p,
        "stopSequences": list(asked.stop) or None,
    }


def _tools(asked: Parameters) -> dict[str, Any]:
    """The tools; Converse has no way to forbid calls, so ``"none"`` offers no tool."""
    if not asked.tools or asked.tool_choice == "none":
        return {}
    if isinstance(asked.tool_choice, Tool):
        choice: Mapping[str, Any] | None = {"tool": {"name": asked.tool_choice.name}}
    else:
        choice = _CHOICES.get(asked.tool_choice)
    return {"tools": [{"toolSpec": _tool_spec(tool)} for tool in asked.tools], "toolChoice": choice}


def _tool_spec(tool: Tool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    strict = {"strict": True} if tool.strict else {}
    return {"name": tool.name, **described, "inputSchema": {"json": tool.schema}, **strict}


def _output(asked: Parameters) -> dict[str, Any]:
    if asked.schema is None:
        return {}
    schema = {"name": asked.schema.name, "schema": json.dumps(asked.schema.schema)}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}


def _further(asked: Parameters) -> dict[str, Any]:
    return without_openais(
        {
            "top_k": asked.top_k,
            "seed": asked.seed,
            "presence_penalty": asked.presence_penalty,
            "frequency_penalty": asked.frequency_penalty,
            **{name: value for name, value in asked.rest.items() if name not in _OWN | _FIXED},
        }
    )


def _merged(translated: Mapping[str, Any], given: object) -> object:
    """Both, merged field by field; given values take precedence. A value that is no object replaces the
    other.
    """
    if given is not None and not isinstance(given, Mapping):
        return given
    both = {**translated, **(given or {})}
    return {name: value for name, value in both.items() if value is not None}
