"""Translates Nunjucks templates to Jinja2; problems name what Jinja2 lacks, and an alternative."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fairlane.apps.promptfoo.reading.places import Place, with_texts
from fairlane.core.errors import TemplateError
from fairlane.templates.template import Template, check_templates

_INSTEAD = {
    "'nl2br'": "leave it out",
    "'striptags'": "leave it out",
    "'env'": "the environment is not read: write the value",
    "'_conversation'": "only prompts read it",
}


_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_PAIRS = re.compile(r"^(\{%-?\s*for\s+\w+\s*,\s*\w+\s+in\s+)([\w.\[\]'\"]+)(\s*-?%\})$")
_DUMP = re.compile(r"\|\s*dump\b(?:\s*\(\s*\d*\s*\))?")


def translated(text: str) -> str:
    """Translate Nunjucks: ``dump`` becomes ``tojson``, and a loop over pairs also takes an object."""
    if "dump" not in text and "for" not in text:
        return text
    return _TAG.sub(lambda tag: _PAIRS.sub(_pairs, _DUMP.sub("| tojson", tag[0])), text)


def _pairs(loop: re.Match[str]) -> str:
    before, listed, after = loop.groups()
    return f"{before}({listed}.items() if {listed} is mapping else {listed}){after}"


def compiled(text: str, place: Place) -> Template | None:
    """The template, or a problem and ``None``."""
    try:
        return Template("", translated(text))
    except TemplateError as error:
        place.refuse(_explained(error))
        return None


def rendered(template: Template, names: Mapping[str, Any], place: Place) -> str | None:
    """The text for these variables, or a problem and ``None``."""
    try:
        return template.render_variables(dict(names))
    except TemplateError as error:
        place.refuse(_explained(error))
        return None


def filled(value: Any, names: Mapping[str, Any], place: Place) -> Any:
    """``value`` with every text in it rendered."""

    def fill(text: str, where: Place) -> str | None:
        template = compiled(text, where)
        return text if template is None or template.constant else rendered(template, names, where)

    return with_texts(value, place, fill)


def read_by(value: Any) -> frozenset[str]:
    """Variables that the texts in ``value`` read; none of a text that is no template."""
    if isinstance(value, str):
        with suppress(TemplateError):
            return check_templates({"": translated(value)})
        return frozenset()
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return frozenset().union(*map(read_by, parts))


def _explained(error: TemplateError) -> str:
    text = str(error).removeprefix(": ")
    if error.variable is not None and text.startswith(("the row has no field", "the row's field")):
        allowed = f"{{{{ {error.variable} | default('', true) }}}} allows that"
        text = f"no variable {error.variable!r} is set here ({allowed})"
    listed = text.partition("; there are:")[0]
    remedy = next((advice for word, advice in _INSTEAD.items() if word in listed), "")
    return f"{listed}: {remedy}" if remedy else listed
