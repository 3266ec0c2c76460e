"""The prompts of judges and agents, and the formats of their answers."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fairlane.model.evaluators import Criterion

MET, UNMET = "pass", "fail"
"""The choices of a judge that checks a rubric."""

REASON_TOKENS = 200
"""Tokens of JSON with a reason of two sentences, in a language that takes many tokens."""

FORMING = frozenset({"response_format", "tools", "tool_choice"})
"""Parameters that determine the format of an answer."""

_BOUNDS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")

_RUBRIC = """\
You check whether an output meets a rubric. Judge nothing but what the rubric asks for.

<output>
{{{{ output }}}}
</output>

<rubric>
{rubric}
</rubric>

Does the output meet the rubric? Answer with one word, {met} or {unmet}."""


def rubric_template(rubric: str) -> str:
    """The template of a judge that answers `MET` or `UNMET`; ``rubric`` is a template over the row, too."""
    return _RUBRIC.format(rubric=rubric, met=MET, unmet=UNMET)


_OUTPUT = "<output>\n{{ output }}\n</output>"
_TAGS = re.compile(r"<(?=[\s/]*(?:output|rubric)\b)", re.IGNORECASE)


def enclosed(template: str, output: str) -> str:
    """The output for a rubric's template, with its tags masked so that they cannot close the template's. A
    masked tag begins with an angle quotation mark. For other templates the output stays unchanged.
    """
    return _TAGS.sub("\u2039", output) if _OUTPUT in template else output


def has_room_for_reasons(params: Mapping[str, Any]) -> bool:
    """Whether ``params`` allow an answer long enough for a reason and a choice as JSON."""
    bounds = [params[name] for name in _BOUNDS if isinstance(params.get(name), int)]
    return min(bounds, default=REASON_TOKENS) >= REASON_TOKENS


def instruction(criteria: Sequence[Criterion], *, batch: bool) -> str:
    """The text after an agent's template: the criteria, and the JSON to answer with."""
    listed = "\n".join(
        f"- {each.id} ({each.minimum:g} to {each.maximum:g}): {each.description}" for each in criteria
    )
    if batch:
        shape = '{"evaluations": [{"criterion_id": "…", "score": 0, "argument": "…"}, …]}, one for each'
    else:
        shape = '{"score": 0, "argument": "…"}'
    return f"Score it by:\n{listed}\n\nAnswer with JSON alone: {shape}."


def answer_format(criteria: Sequence[Criterion], *, batch: bool) -> dict[str, Any]:
    """The format of an agent's answer as a JSON schema, for OpenAI's ``response_format``."""
    opinion: dict[str, Any] = {"score": {"type": "number"}, "argument": {"type": "string"}}
    if batch:
        opinion = {"criterion_id": {"type": "string", "enum": [each.id for each in criteria]}, **opinion}
        fields: dict[str, Any] = {"evaluations": {"type": "array", "items": _closed(opinion)}}
    else:
        fields = opinion
    return _format("evaluation", fields)


def verdict_format(choices: Sequence[str], *, reasons: bool) -> dict[str, Any]:
    """The format of a judge's answer: its reason, and then one of ``choices``, so that it reasons first."""
    reason = {"reason": {"type": "string", "description": "Why, in one or two sentences."}}
    choice = {"choice": {"type": "string", "enum": list(choices)}}
    return _format("verdict", {**reason, **choice} if reasons else choice)


def tool_of(form: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that constrain an answer to the schema of ``form`` by a tool that the model must call."""
    schema = form["json_schema"]
    function = {"name": schema["name"], "description": "Give your answer.", "parameters": schema["schema"]}
    choice = {"type": "function", "function": {"name": schema["name"]}}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}


def _format(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": _closed(fields)}}


def _closed(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
