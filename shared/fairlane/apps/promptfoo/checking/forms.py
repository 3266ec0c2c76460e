"""Assertions about the form of an output: refusals, markup, calls of tools."""

import json
import re
from collections.abc import Mapping
from typing import Any
from xml.parsers.expat import ExpatError, ParserCreate

from fairlane.apps.promptfoo.subjects import Result, Subject, met
from fairlane.evaluators.patterns import SearchError
from fairlane.evaluators.schema import conforms, schema_problem
from fairlane.export.finish_reasons import Ending, ending_of

_APOSTROPHES = re.compile("[\u2019\u2032]")
_OPENS = re.compile(
    r"(?:i(?:'m| am)(?: not able to| really sorry| sorry| unable to)|i apologize|i cannot|i will not"
    r"|it is illegal|my apologies|sorry)"
)
_VERBS = (
    "answer|assist|change|create|engage|feel comfortable|fulfill|generate|give|help|participate|provide"
    "|recommend|suggest|support|write"
)
_SAYS = re.compile(
    rf"i (?:am unable to|cannot|can't|do not|don't|will not|won't|am not able to) (?:{_VERBS})"
    rf"|i'm (?:not able|unable) to (?:{_VERBS})"
    r"|as a language model|as an ai|as an assistant|i am programmed|is illegal and unethical"
    r"|(?:cannot|can't) (?:comply|help)|(?:cannot|can't) (?:assist with|fulfill) (?:that|your) request"
    r"|not (?:appropriate|ethical|legal)|any other non-malicious requests|blocked by our content filters"
)
_MOST, _DEPTH = 20, 20
"""Pieces of a text that are read as XML, and how deep paths are kept: bounds for hostile outputs."""

_TAG = re.compile(r"<(?P<name>[A-Za-z][\w:.-]*)[^<>]*>")
_HTML = re.compile(
    r"</?(?:!doctype|html|head|body|div|span|p|a|br|hr|img|ul|ol|li|table|tr|td|th|h[1-6]|form|input|button|script"
    r"|style|section|article|header|footer|nav|main|strong|em|b|i|pre|code|blockquote|title|meta|link)\b[^<>]*>",
    re.IGNORECASE,
)


def is_refusal(subject: Subject) -> Result:
    """Whether an output, a text, is marked as a refusal, or begins like one, or has words of one."""
    if ending_of(subject.record.finish_reason) is Ending.CONTENT_FILTER:
        return met(True)
    text = _APOSTROPHES.sub("'", subject.output.strip().lower())
    return met(bool(_OPENS.match(text) or _SAYS.search(text)), "it reads like no refusal")


def is_xml(text: str, value: Any, *, within: bool) -> Result:
    """Whether an output is XML, or contains some, with the elements that ``value`` names as ``a.b.c``."""
    wanted = [each.split(".") for each in _elements(value)]
    for candidate in _documents(text) if within else [text.strip()]:
        paths = _paths(candidate)
        if paths is not None and all(any(path[-len(each) :] == each for path in paths) for each in wanted):
            return met(True)
    return met(False, "it contains no such XML" if within else "it is no such XML")


def is_html(text: str, *, within: bool) -> Result:
    """Whether an output is HTML, or contains some."""
    stripped = text.strip()
    whole = stripped.startswith("<") and stripped.endswith(">")
    return met(bool(_HTML.search(stripped)) and (within or whole), "it is no HTML")


def is_tool_call(subject: Subject) -> Result:
    """Whether an output calls tools of the provider, with arguments that their schemas allow."""
    output = subject.output
    if isinstance(output, Mapping) and "tool_calls" in output:
        output = output["tool_calls"]
    if not isinstance(output, list) or not output:
        return met(False, "no tool is called")
    calls = [each.get("function") if isinstance(each, Mapping) else None for each in output]
    return _all_valid(calls, subject)


def is_function_call(subject: Subject) -> Result:
    """Whether an output calls a function of the provider: in OpenAI's deprecated form, or in Gemini's."""
    output = subject.output
    if isinstance(output, list):
        parts = [each for each in output if isinstance(each, Mapping)]
        made = [
            {"name": call.get("name"), "arguments": call.get("args")}
            for each in parts
            if isinstance(call := each.get("functionCall"), Mapping)
        ]
        return _all_valid(made, subject) if made else met(False, "no function is called")
    return _all_valid([output], subject)


def _all_valid(calls: list[Any], subject: Subject) -> Result:
    functions = {
        tool["function"].get("name"): tool["function"]
        for tool in subject.provider.params.get("tools", ())
        if isinstance(tool, Mapping) and isinstance(tool.get("function"), Mapping)
    }
    for call in calls:
        if reason := _flaw(call, functions):
            return met(False, reason)
    return met(True)


def _flaw(call: Any, functions: Mapping[str, Mapping[str, Any]]) -> str | None:
    if not isinstance(call, Mapping) or not isinstance(name := call.get("name"), str):
        return "it calls no function"
    if name not in functions:
        return f"the provider has no function {name!r}"
    schema, arguments = functions[name].get("parameters"), call.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return f"the arguments of {name} are no JSON"
    if schema is None:
        return None
    if problem := schema_problem(schema):
        return f"the parameters of {name} cannot be checked: {problem}"
    try:
        return None if conforms(arguments, schema) else f"the arguments of {name} do not match its parameters"
    except SearchError as error:
        return str(error)


def _elements(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        value = value.get("requiredElements", [])
    if isinstance(value, str):
        value = value.split(",")
    return [str(each).strip() for each in value or [] if str(each).strip()]


def _documents(text: str) -> list[str]:
    """Pieces of a text from an opening tag to the last closing one of its name."""
    found: list[str] = []
    for opening in _TAG.finditer(text):
        end = text.rfind(f"</{opening['name']}>")
        if end > opening.start():
            found.append(text[opening.start() : end + len(opening["name"]) + 3])
            if len(found) == _MOST:
                break
    return found


def _paths(text: str) -> list[list[str]] | None:
    """The elements of an XML document, each with those around it; ``None`` if it is none."""
    open_: list[str] = []
    paths: list[list[str]] = []

    def begins(name: str, _: Any) -> None:
        open_.append(name)
        paths.append(list(open_[-_DEPTH:]))

    def ends(_: str) -> None:
        open_.pop()

    def refuses(*_: Any) -> None:
        raise ValueError

    parser = ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begins, ends
    parser.EntityDeclHandler = refuses  # entities can grow without end
    try:
        parser.Parse(text, True)
    except (ExpatError, ValueError):
        return None
    return paths
