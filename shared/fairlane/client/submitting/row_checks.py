"""Checks what a run asks on its first rows: requests, chats in prompts, fields by wrong names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fairlane.client.submitting.parameters import check_answer, check_repetitions
from fairlane.core.errors import SubmissionError
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import Message, RunSpec
from fairlane.pipeline.requests import URL_FIELD, body_of, read_request
from fairlane.pipeline.responses_as_chat import MalformedRequest
from fairlane.templates.template import TAKEN

_ALONE = re.compile(r"\s*\{\{\s*([A-Za-z_]\w*)\s*\}\}\s*")
"""A template that prints one field and nothing else."""

_FORMS = (
    'A request is {"messages": […]} with its own parameters, a list of messages, or either as a text of JSON.'
)

_NAME = re.compile(r"[A-Za-z_]\w*")

_ANYWAY = "check=False (--no-check) sends it as it is."

OTHERS_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bot", "ai", "model", "assistant"), "assistant"),
    "system": "system",
}
"""The roles that datasets call otherwise (ShareGPT's human and gpt, LangChain's ai, Gemini's model), or
write in capitals.
"""

Rows = Sequence[Mapping[str, Any]]


def check_requests(spec: RunSpec, rows: Rows, named: str, anyway: str) -> None:
    """Raise `SubmissionError` for a request that pays for dropped answers, or if no row's can be sent.

    ``named`` names the rows in a message that ends with ``anyway``. A function takes rows as they are.
    """
    field, failed = str(spec.request_field), dict[int, MalformedRequest]()
    if all(model.startswith(f"{FUNCTIONS}:") for model in spec.models):
        return
    for number, row in enumerate(rows, start=1):
        given = row.get(field)
        try:
            body = body_of(given)
            # Whether its connection takes responses as they are is the scheduler's to know.
            read_request(row.get(URL_FIELD), given, as_responses=True)
        except MalformedRequest as malformed:
            failed[number] = malformed
            continue
        check_answer(field, body, number)
        check_repetitions(spec.repetitions, field, body, number)
    if len(failed) == len(rows):
        problem = f"names a field that holds a request in none of {named}: {failed[1]}"
        raise SubmissionError("request", field, problem, f"{_FORMS} {anyway}")


def check_chats(field: str, prompt: Sequence[Message], rows: Rows) -> None:
    """Raise `SubmissionError` for a role by another tool's name, and for a prompt whose whole text is a row's
    list of messages, as JSON.
    """
    for number, message in enumerate(prompt):
        if (role := OTHERS_ROLES.get(message.role.lower())) is not None and message.role != role:
            where = f"{field}[{number}].role"
            raise SubmissionError(where, message.role, "is no role", f"Write {role!r}. {_ANYWAY}")
        if (name := _ALONE.fullmatch(message.content)) is None:
            continue
        values = [value for row in rows if (value := row.get(name[1])) is not None]
        if values and all(map(_is_chat, values)):
            problem = "would send each row's list of messages as one text of JSON"
            remedy = f'Give request="{name[1]}" in its place. {_ANYWAY}'
            raise SubmissionError(field, message.content, problem, remedy)


def check_names_of_fields(field: str, template: object, names: Sequence[str]) -> None:
    """Raise `SubmissionError` for a template that prints a field by a name which it reads otherwise."""
    texts: list[str] = template if isinstance(template, list) else [str(template)]
    for name in names:
        if _NAME.fullmatch(name) and name not in TAKEN:
            continue
        printed = re.compile(r"\{\{-?\s*" + re.escape(name) + r"\s*[|}-]")
        for text in filter(printed.search, texts):
            problem = f"does not print the field {name!r}, whose name is no word of a template"
            raise SubmissionError(field, text, problem, by_key(name))


def by_key(name: str) -> str:
    """How a template prints a field whatever its name is."""
    return f"Write {{{{ row[{json.dumps(name, ensure_ascii=False)}] }}}}."


def _is_chat(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, Mapping) and {"role", "content"} <= each.keys() for each in value)
    )
