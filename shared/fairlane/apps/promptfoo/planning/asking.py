"""Renders prompts in this process: a whole chat request for each row."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.reading.case import Case
from fairlane.apps.promptfoo.reading.chats import chat_of
from fairlane.apps.promptfoo.reading.parameters import read_parameters
from fairlane.apps.promptfoo.reading.places import Place, Problems
from fairlane.apps.promptfoo.reading.prompts import PromptText
from fairlane.apps.promptfoo.reading.providers import Provider
from fairlane.apps.promptfoo.reading.templates import filled
from fairlane.apps.promptfoo.reading.yaml12 import YamlError, parse_yaml


def ask(
    prompt: PromptText, provider: Provider, case: Case, names: Mapping[str, Any]
) -> tuple[dict[str, Any], str] | None:
    """A request as ``submit`` takes it from a row, and the prompt as a text; ``None`` after a problem."""
    made = written(prompt, provider, case, names)
    if made is None:
        return None
    text, config = made
    messages = _messages(text, prompt)
    if messages is None:
        return None
    if provider.instructions:
        messages = [{"role": "system", "content": provider.instructions}, *messages]
    own = read_parameters(prompt.label, config, prompt.place)
    return {"messages": messages, **own.values}, text


def written(
    prompt: PromptText, provider: Provider, case: Case, names: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]] | None:
    """The prompt for one row as a text, and its own parameters; ``None`` after a problem."""
    made = _raw(prompt, provider, names)
    if made is None:
        return None
    raw, config = made
    before, after = provider.affixes
    raw = f"{case.options.get('prefix') or ''}{raw}{case.options.get('suffix') or ''}"
    text = _filled_in(f"{before}{raw}{after}", prompt.place, names)
    return None if text is None else (text, config)


def _raw(
    prompt: PromptText, provider: Provider, names: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]] | None:
    """The template and its parameters, as written or as a program returns them."""
    if prompt.program is None:
        return prompt.raw, prompt.config
    context = {
        "vars": dict(names),
        "provider": {"id": provider.identity, "label": provider.label},
        "config": dict(prompt.config),
    }
    path, function = prompt.program
    try:
        if path.suffix == ".py" and function is None:
            found: Any = prompt.place.programs.script(path, [json.dumps(context, ensure_ascii=False)])
        else:
            found = prompt.place.programs.file(path, function, [context], default="")
    except ProgramError as error:
        prompt.place.refuse(f"{path.name}: {error}")
        return None
    config = prompt.config
    if isinstance(found, Mapping) and "prompt" in found:
        config = {**config, **(prompt.place / "config").mapping(found.get("config"))}
        found = found["prompt"]
    if isinstance(found, Mapping | list):
        found = json.dumps(found, ensure_ascii=False)
    if not isinstance(found, str):
        prompt.place.refuse(f"{path.name} returned no prompt")
        return None
    return found, config


def _messages(text: str, prompt: PromptText) -> list[dict[str, Any]] | None:
    """The chat that a text encodes, else one user message."""
    stripped = text.strip()
    brackets = (stripped[:1], stripped[-1:]) in (("{", "}"), ("[", "]"))
    try:
        document = parse_yaml(stripped) if stripped.startswith("- role:") else json.loads(stripped)
    except (ValueError, YamlError, RecursionError) as error:
        if (brackets and '"role"' in stripped) or stripped.startswith("- role:"):
            shown = " ".join(str(error).split())
            prompt.place.refuse(f"the chat that its template makes cannot be read: {shown}")
            return None
        document = None
    return chat_of(document) or [{"role": "user", "content": text}]


def text_of(request: Mapping[str, Any]) -> str:
    """A request's messages as a prompt: the text of one user's message, else JSON."""
    messages = request["messages"]
    match messages:
        case [{"role": "user", "content": str(text)}]:
            return text
    return json.dumps(messages, indent=2, ensure_ascii=False)


def asked_text(prompt: PromptText, names: Mapping[str, Any]) -> str:
    """A prompt that workers rendered, as assertions see it; its template, if only workers can fill it."""
    problems = Problems()
    text = _filled_in(prompt.raw, replace(prompt.place, problems=problems), names)
    return prompt.raw if text is None or any(problems) else text


def _filled_in(raw: str, place: Place, names: Mapping[str, Any]) -> str | None:
    """The prompt with its variables filled in: text by text, if it is JSON."""
    names = {**names, "row": names}
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        found = filled(raw, names, place)
        return found if isinstance(found, str) else None
    return json.dumps(filled(document, names, place), indent=2, ensure_ascii=False)
