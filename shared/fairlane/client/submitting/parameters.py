"""Rejects useless requests before a run starts: parameters that no provider takes or no record keeps. On the
first rows it also checks requests, chats in prompts, and names of fields.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from fairlane.client.submitting.arguments import is_constant
from fairlane.config.connections.connection import (
    ASKS_FOR_NOTHING,
    EFFORTS,
    LACKED,
    PARALLEL_TOOLS_ALONE,
    SCHEMAS_ALONE,
)
from fairlane.config.connections.endpoint import HttpEndpoint
from fairlane.core.errors import SubmissionError
from fairlane.model.choices import CONVERSATION, Message
from fairlane.model.evaluators import Agent, Judge, Similarity
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import RunSpec
from fairlane.model.tokens import SECTIONS
from fairlane.pipeline.requests import URL_FIELD, MalformedRequest, body_of, read_request
from fairlane.templates.template import TAKEN, referenced_variables

KNOWN = frozenset(
    {
        *("audio", "background", "best_of", "cache_control", "chat_template_kwargs", "dimensions"),
        *("early_stopping", "encoding_format", "format", "frequency_penalty", "function_call"),
        *("functions", "guided_choice", "guided_grammar", "guided_json", "guided_regex"),
        *("ignore_eos", "include", "input_type", "instructions", "keep_alive", "length_penalty"),
        *("logit_bias", "logprobs", "max_completion_tokens", "max_output_tokens", "max_tokens"),
        *("metadata", "min_p", "min_tokens", "mirostat", "modalities", "n", "num_ctx"),
        *("num_predict", "options", "parallel_tool_calls", "prediction", "presence_penalty"),
        *("previous_response_id", "prompt_cache_key", "random_seed", "reasoning"),
        *("reasoning_effort", "repeat_last_n", "repeat_penalty", "repetition_penalty"),
        *("response_format", "safe_prompt", "safety_identifier", "safety_settings", "seed"),
        *("service_tier", "stop", "stop_sequences", "store", "stream_options", "system"),
        *("temperature", "text", "think", "thinking", "thinking_config", "tool_choice"),
        *("tool_config", "tools", "top_a", "top_k", "top_logprobs", "top_p", "transforms"),
        *("truncation", "user", "verbosity", "web_search_options"),
    }
)
"""Names that at least one provider takes. A name that is nearly one of them counts as a typing error."""

_ALIKE = 0.88
"""`difflib` ratio: one letter more, less or other in eight."""

_COUNTS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
}
"""The widest range that a provider documents (OpenAI's, 2026)."""

_ONE = frozenset({"n", "best_of", "candidateCount"})
"""Parameters for the number of answers. Each is paid for, and only the first is kept."""

_SEEDS = frozenset({"seed", "random_seed"})
"""With the same seed a model gives the same answer, as far as its provider keeps the promise."""

_UNKEPT = frozenset({"logprobs", "top_logprobs", "prompt_logprobs", "responseLogprobs"})
_LOGPROBS = "message.output_text.logprobs"
"""What ``include`` of a request for a response names log probabilities by."""

_MODALITIES = frozenset({"modalities", "responseModalities", "response_modalities"})
"""Parameters for the content types of an answer. A record keeps text only."""

_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_TEMPLATES = frozenset({"chat_template"})
"""Parameters whose value is a template for the server."""

_FUNCTION_OF_OWN = "a function of yours (task=)"
_ANYWAY = "check=False (--no-check) sends it as it is."

_ALONE = re.compile(r"\s*\{\{\s*([A-Za-z_]\w*)\s*\}\}\s*")
"""A template that prints one field and nothing else."""

_SPELT_OUT = re.compile(r"""\s*\[(?:\s|\{%[^%]*%\})*\{\s*"role"\s*:""")
"""The beginning of a list of messages as JSON."""

_BESIDE = (
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "tools",
    "tool_choice",
    "response_format",
)
"""Parameters in a row that is itself a request; other names may be the dataset's."""

_FORMS = (
    'A request is {"messages": […]} with its own parameters, a list of messages, or either as a text of JSON.'
)

_NAME = re.compile(r"[A-Za-z_]\w*")

_OF_ROW = re.compile(r"\brow\s*[.\[]")

_BRACED = re.compile(r"\{\s*([^{}]{1,200}?)\s*\}")
"""A name as other tools write it in their templates."""

_BLANKS = re.compile(r"\{\d*\}|%(?:\(\w+\))?[sd]\b")
"""What Python's `str.format` and ``%`` fill in."""

ROLES = frozenset({"system", "user", "assistant"})
"""The roles that every provider knows."""

FOREIGN_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bot", "ai", "model", "assistant"), "assistant"),
    "system": "system",
}
"""The roles that datasets call otherwise (ShareGPT's human and gpt, LangChain's ai, Gemini's model), or
write in capitals.
"""

Rows = Sequence[Mapping[str, Any]]


def check_params(spec: RunSpec) -> None:
    """Check the parameters of a run's tasks and evaluators. Raises `SubmissionError`."""
    if spec.models and not all(model.startswith(f"{FUNCTIONS}:") for model in spec.models):
        _check_each("params", spec.params)
        check_repetitions(spec.repetitions, "params", spec.params)
    for each in spec.evaluators:
        if isinstance(each, Judge | Agent | Similarity):
            _check_each(f"evaluators[{each.name!r}].params", each.params)


def _check_each(field: str, params: Mapping[str, Any]) -> None:
    for name, value in params.items():
        place = f"{field}[{name!r}]"
        if name not in _TEMPLATES and (text := _template_in(value)) is not None:
            problem = "is no template: every row would be sent it as it stands"
            remedy = f"A row's own request= (--request) can differ from others'. {_ANYWAY}"
            raise SubmissionError(place, text, problem, remedy)
        near = get_close_matches(name.lower(), KNOWN, n=1, cutoff=_ALIKE)
        if name not in KNOWN and near:
            remedy = f"Did you mean {near[0]!r}? {_ANYWAY}"
            raise SubmissionError(place, value, "is no parameter of a provider", remedy)
        wanted = _wanted(name, value) if value is not None else None
        if wanted is not None:
            problem = "would be rejected by every provider"
            raise SubmissionError(place, value, problem, f"Give {wanted}. {_ANYWAY}")
    check_answer(field, params)


def check_protocol(field: str, params: Mapping[str, Any], protocol: str) -> None:
    """Raise `SubmissionError` for parameters with which each call over ``protocol`` would fail."""
    known, effort = EFFORTS.get(protocol), params.get("reasoning_effort")
    if known is not None and effort is not None and effort not in known:
        problem = f"is no effort that connections of protocol {protocol!r} can ask for"
        given = f"Give one of {', '.join(known)}" if known else "Leave it out"
        remedy = f"{given}, or submit a run for each protocol. {_ANYWAY}"
        raise SubmissionError(f"{field}['reasoning_effort']", effort, problem, remedy)
    if protocol in PARALLEL_TOOLS_ALONE and params.get("parallel_tool_calls") is False:
        problem = f"is nothing that connections of protocol {protocol!r} can ask for"
        raise SubmissionError(f"{field}['parallel_tool_calls']", False, problem, f"Leave it out. {_ANYWAY}")
    asked = params.get("response_format")
    if protocol in SCHEMAS_ALONE and isinstance(asked, Mapping) and asked.get("type") == "json_object":
        problem = f"is nothing that connections of protocol {protocol!r} can ask for"
        remedy = f'Give {{"type": "json_schema", …}}. {_ANYWAY}'
        raise SubmissionError(f"{field}['response_format']", asked, problem, remedy)
    for name in sorted(LACKED.get(protocol, frozenset()) & params.keys()):
        value = params[name]
        if value is not None and not (name in ASKS_FOR_NOTHING and value == ASKS_FOR_NOTHING[name]):
            problem = f"is no parameter that connections of protocol {protocol!r} can send"
            remedy = f"Leave it out, or submit a run for each protocol. {_ANYWAY}"
            raise SubmissionError(f"{field}[{name!r}]", value, problem, remedy)


def check_sent(field: str, params: Mapping[str, Any], connection: str, endpoint: HttpEndpoint | None) -> None:
    """Raise `SubmissionError` for a parameter that the templates of a connection's endpoint do not send."""
    for name in endpoint.unsent(params) if endpoint else ():
        problem = f"is not sent by connection {connection!r}: no template of its endpoint has it"
        remedy = f'Leave it out, or write "{{{{ params.{name} }}}}" into its endpoint.body. {_ANYWAY}'
        raise SubmissionError(f"{field}[{name!r}]", params[name], problem, remedy)


def _template_in(value: object) -> str | None:
    """The first text in a value that looks like a template."""
    if isinstance(value, str):
        return value if _TEMPLATE.search(value) else None
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return next((text for part in parts if (text := _template_in(part)) is not None), None)


def check_answer(field: str, params: Mapping[str, Any], row: int | None = None) -> None:
    """Raise `SubmissionError` for parameters, of one row or of all, that ask for more than one text, or
    that Fairlane would replace.
    """
    for name, value in params.items():
        if name == "timeout":
            problem = "is no parameter of a provider"
            raise SubmissionError(f"{field}[{name!r}]", value, problem, f"Give timeout=. {_ANYWAY}", row=row)
        if (name in _UNKEPT and value) or (name == "include" and _LOGPROBS in str(value)):
            remedy = f"Leave it out, or return it from {_FUNCTION_OF_OWN}. {_ANYWAY}"
            raise SubmissionError(
                f"{field}[{name!r}]", value, "asks for what no record keeps", remedy, row=row
            )
        if name in _ONE and value not in (None, 1):
            problem = "would be paid for, and all answers but the first dropped"
            several = f"repetitions= (--repetitions) asks more than once, {_FUNCTION_OF_OWN} may return all"
            remedy = f"Leave it out; {several}. {_ANYWAY}"
            raise SubmissionError(f"{field}[{name!r}]", value, problem, remedy, row=row)
        if name in _MODALITIES and not _is_text_alone(value):
            problem = "asks for what no record keeps: that keeps texts"
            remedy = f'Give ["text"], or leave it out. {_ANYWAY}'
            raise SubmissionError(f"{field}[{name!r}]", value, problem, remedy, row=row)
    if isinstance(googles := params.get("generationConfig"), Mapping):
        check_answer(f"{field}['generationConfig']", googles, row)


def check_repetitions(
    repetitions: int, field: str, params: Mapping[str, Any], row: int | None = None
) -> None:
    """Raise `SubmissionError` for parameters, of one row or of all, that make repetitions equal."""
    if repetitions == 1:
        return
    for name, value in params.items():
        if name in _SEEDS and value is not None:
            problem = (
                f"fixes the answer: its {repetitions:,} repetitions would be equal, and each is paid for"
            )
            remedy = f"Leave it out, or submit a run without repetitions for each seed. {_ANYWAY}"
            raise SubmissionError(f"{field}[{name!r}]", value, problem, remedy, row=row)
        if name in SECTIONS and isinstance(value, Mapping):
            check_repetitions(repetitions, f"{field}[{name!r}]", value, row)


def _is_text_alone(modalities: object) -> bool:
    listed = modalities if isinstance(modalities, list | tuple) else [modalities]
    return all(each is None or str(each).lower() == "text" for each in listed)


def _wanted(name: str, value: object) -> str | None:
    """What the parameter takes; ``None`` if the value is that."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in _COUNTS and not (number and value == int(value) and value >= 1):  # type: ignore[operator, call-overload]
        return "a whole number, 1 or more"
    if name in _RANGES:
        low, high = _RANGES[name]
        if not (number and low <= value <= high):  # type: ignore[operator]
            return f"a number from {low:g} to {high:g}"
    return None


def check_requests(spec: RunSpec, rows: Rows, named: str, anyway: str) -> None:
    """Raise `SubmissionError` for a request that names another tool's role or pays for dropped answers, or if
    no row's can be sent.

    ``named`` names the rows in a message that ends with ``anyway``. A function takes rows as they are.
    """
    field, failed = str(spec.request_field), dict[int, MalformedRequest]()
    if not _asks(spec):
        return
    for number, row in enumerate(rows, start=1):
        given = row.get(field)
        try:
            # Only the scheduler knows whether the connection takes Responses requests.
            read_request(row.get(URL_FIELD), given, as_responses=True)
        except MalformedRequest as malformed:
            failed[number] = malformed
            continue
        beside = [name for name in _BESIDE if row.get(name) is not None] if isinstance(given, list) else []
        if beside:
            problem = f"would leave out {', '.join(beside)}, which the row has beside it"
            remedy = f'Submit rows {{"body": row}} with request="body". {_ANYWAY}'
            raise SubmissionError("request", field, problem, remedy, row=number)
        check_request(spec, row, number)
    if len(failed) == len(rows):
        problem = f"names a field that holds a request in none of {named}: {failed[1]}"
        raise SubmissionError("request", field, problem, f"{_FORMS} {anyway}")


def check_request(spec: RunSpec, row: Mapping[str, Any], number: int) -> None:
    """Raise `SubmissionError` for a row's request that names another tool's role or pays for what is dropped.

    A request that cannot be sent is none of them.
    """
    field = spec.request_field
    if field is None or not _asks(spec):
        return
    with suppress(MalformedRequest):
        body = body_of(row.get(field))
        _check_roles(field, body, number)
        check_answer(field, body, number)
        check_repetitions(spec.repetitions, field, body, number)


def _asks(spec: RunSpec) -> bool:
    """Whether a model gets the rows' requests: functions take rows as they are."""
    return not all(model.startswith(f"{FUNCTIONS}:") for model in spec.models)


def _check_roles(field: str, body: Mapping[str, Any], row: int) -> None:
    for name in ("messages", "input"):
        said = body.get(name)
        for number, message in enumerate(said if isinstance(said, list) else ()):
            if isinstance(message, Mapping):
                _check_role(f"{field}.{name}[{number}].role", message.get("role"), row)


def _check_role(where: str, role: object, row: int | None = None) -> None:
    named = FOREIGN_ROLES.get(role.lower()) if isinstance(role, str) else None
    if named is not None and role != named:
        raise SubmissionError(where, role, "is no role", f"Write {named!r}. {_ANYWAY}", row=row)


def check_chats(field: str, prompt: Sequence[Message], rows: Rows) -> None:
    """Raise `SubmissionError` for a role by another tool's name, and for a prompt whose whole text is a list
    of messages as JSON: a row's, or one that it spells out, as promptfoo's prompts do.
    """
    for number, message in enumerate(prompt):
        _check_role(f"{field}[{number}].role", message.role)
        if _SPELT_OUT.match(message.content):
            problem = "would send a list of messages as one text of JSON"
            remedy = f'Give messages=[…]; "{CONVERSATION}" in it stands for earlier turns. {_ANYWAY}'
            raise SubmissionError(field, message.content, problem, remedy)
        if (name := _ALONE.fullmatch(message.content)) is None:
            continue
        values = [value for row in rows if (value := row.get(name[1])) is not None]
        if values and all(map(_is_chat, values)):
            problem = "would send each row's list of messages as one text of JSON"
            remedy = f'Give request="{name[1]}" in its place. {_ANYWAY}'
            raise SubmissionError(field, message.content, problem, remedy)


def check_names_of_fields(field: str, template: object, names: Sequence[str]) -> None:
    """Raise `SubmissionError` for a template that prints a field whose name Jinja2 reads differently, or
    that reads the whole row where a field has its name.
    """
    texts: list[str] = template if isinstance(template, list) else [str(template)]
    hidden = "row" in names
    for text in filter(_OF_ROW.search, texts if hidden else ()):
        problem = "reads a part of the field 'row', which takes the place of the whole row"
        raise SubmissionError(field, text, problem, f"Rename that field. {_ANYWAY}")
    for name in names:
        if _NAME.fullmatch(name) and name not in TAKEN:
            continue
        printed = re.compile(r"\{\{-?\s*" + re.escape(name) + r"\s*[|}-]")
        for text in filter(printed.search, texts):
            problem = f"does not print the field {name!r}, whose name is no word of a template"
            remedy = "Rename it: the field 'row' hides the whole row." if hidden else by_key(name)
            raise SubmissionError(field, text, problem, remedy)


def check_braces(field: str, prompt: Sequence[Message], names: Sequence[str]) -> None:
    """Raise `SubmissionError` for a prompt that sends every row ``{name}``, ``{}`` or ``%s`` as it stands."""
    texts = [message.content for message in prompt]
    if not all(map(is_constant, texts)):
        return
    for text in texts:
        named = [name for name in _BRACED.findall(text) if name in names]
        blanks = [f"{{{name}}}" for name in named] or _BLANKS.findall(text)
        for blank, name in zip(blanks, named or names, strict=False):
            problem = f"names no field, so that every row would be sent {blank} as it stands"
            remedy = f"Write {{{{ {name} }}}}. To send it as it is, submit with check=False (--no-check)."
            raise SubmissionError(field, text, problem, remedy)


def check_shown(field: str, evaluator: Judge | Agent, output_field: str | None) -> None:
    """Raise `SubmissionError` for a template that cannot show the output to judge.

    Existing outputs are also shown by the whole row, and by the field that holds them.
    """
    session = isinstance(evaluator, Judge) and evaluator.level == "session"
    shows = {"session"} if session else {"output", output_field}
    if not session and output_field is not None:
        shows.add("row")
    if shows.isdisjoint(referenced_variables(evaluator.template)):
        name = "session" if session else "output"
        problem = f"does not show the {name} that it judges: every judge call would have the same text"
        remedy = f"Put {{{{ {name} }}}} into it. To send it as it is, submit with check=False (--no-check)."
        raise SubmissionError(field, evaluator.template, problem, remedy)


def by_key(name: str) -> str:
    """How a template prints a field whatever its name is."""
    return f"Write {{{{ row[{json.dumps(name, ensure_ascii=False)}] }}}}."


def _is_chat(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, Mapping) and {"role", "content"} <= each.keys() for each in value)
    )
