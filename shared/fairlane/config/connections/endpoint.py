"""HTTP endpoints of your own: the request to send, and the paths of values in the reply."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import AfterValidator, Field, field_validator, model_validator

from fairlane.core.errors import TemplateError
from fairlane.core.section import Mistake, Section, validation_error
from fairlane.templates.shapes import JsonTemplate, PathTemplate, names_in

NAMES = frozenset({"model", "messages", "prompt", "system", "params", "stream"})
"""Variables of body and path templates; the paths of a started call have only ``handle``."""

_FIXED = frozenset({"model", "messages", "stream"})
_PARAMETER = re.compile(r"(?<!\")\bparams\b(?:\.(?!get\b|items\b|keys\b|values\b)(\w+))?")
"""A parameter in an expression; without a name it is all of them."""

T = TypeVar("T")


def _compiled(path: str) -> str:
    try:
        jmespath.compile(path)
    except JMESPathError as error:
        message = str(error).partition(", for expression")[0]
        raise ValueError(f"is no JMESPath: {message}") from error
    return path


JsonPath: TypeAlias = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_compiled)]
"""The place of a value in a JSON document, as JMESPath: ``choices[0].message.content``."""


class EndpointStream(Section):
    """The stream of a reply, if the endpoint has one: one JSON document per event."""

    format: Literal["sse", "ndjson"] = "sse"
    """"sse": server-sent events; "ndjson": a document a line."""

    delta: JsonPath
    """JMESPath of an event's text."""

    end: str | None = Field(default=None, min_length=1)
    """The event, as it stands, that ends a stream: "[DONE]"."""

    done: JsonPath | None = None
    """JMESPath of a value that is true in the last event."""

    @model_validator(mode="after")
    def _has_an_end(self) -> EndpointStream:
        if self.end is None and self.done is None:
            problem = "says neither `end` nor `done`: a stream that was cut would be taken for an answer"
            raise validation_error(
                type(self), Mistake((), problem, 'Write how a stream ends: end = "[DONE]".')
            )
        return self


class EndpointPolling(Section):
    """For an endpoint that starts a call and returns its answer later, when it is polled."""

    handle: JsonPath
    """JMESPath of the call's id in the first reply."""

    status: JsonPath
    """JMESPath of the call's status in a reply."""

    done: tuple[str, ...] = Field(min_length=1)
    """Statuses of a call that has its answer."""

    failed: tuple[str, ...] = ()
    """Statuses of a call that failed."""

    look: str
    """Path to GET, a template: `/jobs/{{ handle }}`."""

    cancel: str | None = None
    """Path to POST to when Fairlane cancels a call. Default: none."""

    every_seconds: float = Field(default=1.0, ge=0.05, le=60)
    """Seconds before the first poll; later pauses grow to 5 s."""

    @field_validator("look", "cancel")
    @classmethod
    def _is_a_path(cls, text: str | None) -> str | None:
        return text if text is None else _checked_path(text, frozenset({"handle"}))


class HttpEndpoint(Section):
    """An endpoint of your own, for `protocol = "http"`: see [HTTP endpoints](http-endpoints.md).

    Templates have `model`, `messages`, `prompt` (the last user message), `system`, `params` and `stream`.
    """

    method: Literal["POST", "GET", "PUT"] = "POST"
    """HTTP method of a call."""

    path: str = ""
    """Path after `base_url`, a template: `/models/{{ model }}`. Values are percent-encoded."""

    body: str | dict[str, Any] | None = None
    """Body: a table, or JSON as a text, whose texts are templates. Not with GET."""

    output: JsonPath
    """JMESPath of the reply's text."""

    input_tokens: JsonPath | None = None
    """JMESPath of the prompt's tokens. Default: the reply has none."""

    output_tokens: JsonPath | None = None
    """JMESPath of the answer's tokens. Default: the reply has none."""

    finish_reason: JsonPath | None = None
    """JMESPath of the reason why the answer ended. Default: the reply has none."""

    error_kind: JsonPath | None = None
    """JMESPath of an error's type or code, for `error_map`. Default: the usual places."""

    error_message: JsonPath | None = None
    """JMESPath of an error's message. Default: the usual places."""

    stream: EndpointStream | None = None
    polling: EndpointPolling | None = None

    def unsent(self, params: Mapping[str, Any]) -> list[str]:
        """The names of the parameters that no template of it sends."""
        body = None if self.body is None else read_body(self.body)
        sent = set(_PARAMETER.findall(json.dumps([self.path, body], default=str)))
        given = (name for name, value in params.items() if value is not None and name not in _FIXED)
        return [] if "" in sent else [name for name in given if name not in sent]

    @field_validator("path")
    @classmethod
    def _is_a_path(cls, text: str) -> str:
        return _checked_path(text, NAMES)

    @field_validator("body", mode="before")
    @classmethod
    def _is_json(cls, body: Any) -> Any:
        if body is not None:
            document = _checked("body", lambda: read_body(body))
            _checked("body", lambda: JsonTemplate("body", document))
            _known(names_in(document), NAMES)
        return body

    @model_validator(mode="after")
    def _agrees(self) -> HttpEndpoint:
        if self.method == "GET" and self.body is not None:
            wrong = Mistake(("body",), "is not sent with GET", 'Leave it out, or write method = "POST".')
            raise validation_error(type(self), wrong)
        if self.method != "GET" and self.body is None:
            remedy = 'Write a table, such as {prompt = "{{ prompt }}"}.'
            raise validation_error(
                type(self), Mistake(("body",), f"is missing: {self.method} sends one", remedy)
            )
        return self


def misplaced(protocol: str, endpoint: HttpEndpoint | None) -> Iterator[Mistake]:
    """The mistakes of a connection that has an endpoint, or lacks the one it needs."""
    if protocol == "http" and endpoint is None:
        remedy = "Describe the endpoint in a table: at least `body` and `output`."
        yield Mistake(("endpoint",), 'is missing: protocol "http" needs it', remedy)
    elif protocol != "http" and endpoint is not None:
        remedy = 'Leave the table out, or write protocol = "http".'
        yield Mistake(("endpoint",), f'is not for protocol "{protocol}"', remedy)


def read_body(body: Any) -> Any:
    """The body template as a document: a table unchanged, a text parsed as JSON. Raises `TemplateError`."""
    if isinstance(body, Mapping):
        return body
    if not isinstance(body, str):
        raise TemplateError("body", "a table, or JSON as a text, is expected")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise TemplateError("body", f"is not JSON: {error}; templates go inside its texts") from error


def _checked_path(text: str, known: frozenset[str]) -> str:
    _checked("path", lambda: PathTemplate("path", text))
    _known(names_in(text), known)
    return text


def _checked(field: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except TemplateError as error:
        raise ValueError(str(error).removeprefix(f"{field}: ")) from error


def _known(used: frozenset[str], known: frozenset[str]) -> None:
    for name in sorted(used - known):
        raise ValueError(f"there is no variable {name!r} here; known are {', '.join(sorted(known))}")
