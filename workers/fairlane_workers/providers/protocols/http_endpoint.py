"""The protocol "http": templates in the configuration build requests, JMESPath expressions read replies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import jmespath
from jmespath.exceptions import JMESPathError

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.endpoint import EndpointPolling, EndpointStream, HttpEndpoint, read_body
from fairlane.core.errors import ConfigurationError, TemplateError
from fairlane.templates.shapes import MISSING, JsonTemplate, PathTemplate
from fairlane_workers.providers.answers.answer import Answer, Pending, UnreadableError, output_text
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect, UnmappableError
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.framing.event import EventParser, StreamEvent
from fairlane_workers.providers.framing.ndjson import NdjsonParser
from fairlane_workers.providers.framing.sse import SseParser
from fairlane_workers.providers.protocols.openai.errors import LATE_STATUSES

_MOST_HANDLE = 500
_SYSTEM_ROLES = frozenset({"system", "developer"})


class JsonPath:
    """An expression that finds a value in a document; one that does not fit finds nothing."""

    def __init__(self, expression: str | None) -> None:
        self._compiled = jmespath.compile(expression or "`null`")

    def find(self, document: Any) -> Any:
        """The value; ``None`` for nothing."""
        try:
            return self._compiled.search(document)
        except JMESPathError:
            return None


class _Polling:
    """The compiled settings of polling."""

    def __init__(self, settings: EndpointPolling) -> None:
        self.settings = settings
        self.handle, self.status = JsonPath(settings.handle), JsonPath(settings.status)
        self.look = PathTemplate("endpoint.polling.look", settings.look)
        cancel = settings.cancel
        self.cancel = None if cancel is None else PathTemplate("endpoint.polling.cancel", cancel)


class HttpEndpointDialect(Dialect):
    """Speaks an endpoint's protocol. A run's model, messages and parameters only fill the templates."""

    protocol = "http"
    late_statuses: ClassVar[Mapping[str, int]] = LATE_STATUSES

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self.method = endpoint.method
        self.streams = endpoint.stream is not None
        self._path = PathTemplate("endpoint.path", endpoint.path)
        body = endpoint.body
        self._body = None if body is None else JsonTemplate("endpoint.body", read_body(body))
        self._unsent = endpoint.unsent
        self._output = JsonPath(endpoint.output)
        self._counts = JsonPath(endpoint.input_tokens), JsonPath(endpoint.output_tokens)
        self._counts_answers = endpoint.output_tokens is not None
        self._finish = JsonPath(endpoint.finish_reason)
        self._error = JsonPath(endpoint.error_kind), JsonPath(endpoint.error_message)
        self._stream: EndpointStream | None = endpoint.stream
        self._delta = JsonPath(endpoint.stream.delta if endpoint.stream else None)
        self._done = JsonPath(endpoint.stream.done if endpoint.stream else None)
        self._polling = _Polling(endpoint.polling) if endpoint.polling else None

    @classmethod
    def of(cls, connection: Connection) -> HttpEndpointDialect:
        """See `Dialect.of`; the settings ensure that the connection has an endpoint."""
        if connection.endpoint is None:
            remedy = "Describe the endpoint in a table of that name."
            raise ConfigurationError("endpoint", None, "is missing", remedy)
        return cls(connection.endpoint)

    def target(self, request: Request) -> str:
        """See `Dialect.target`. Raises `UnmappableError` for a parameter that no template sends."""
        for name in self._unsent(request.params) if request.params else ():
            remedy = f'leave it out, or write "{{{{ params.{name} }}}}" into the endpoint\'s body'
            raise UnmappableError(f"params.{name}: this endpoint is not sent it; {remedy}")
        return str(self._filled(self._path, request))

    def body(self, request: Request) -> Any:
        """See `Dialect.body`: the filled template."""
        filled = None if self._body is None else self._filled(self._body, request)
        return {} if filled is MISSING else filled

    def document(self, body: bytes) -> Any:
        """See `Dialect.document`."""
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise UnreadableError(f"not JSON: {body[:80].decode('utf-8', 'replace')!r}") from None

    def read(self, document: Any, answer: Answer) -> None:
        """See `Dialect.read`."""
        if self._note_error(document, answer):
            return
        if self._polling is not None and not self._is_over(self._polling, document, answer):
            return
        text = output_text(self._output.find(document))
        if text is not None:
            answer.add(text)
        self._note_end(document, answer)
        answer.ended = True

    def events(self) -> EventParser:
        """See `Dialect.events`."""
        return NdjsonParser() if self._stream and self._stream.format == "ndjson" else SseParser()

    def fold(self, event: StreamEvent, answer: Answer) -> str:
        """See `Dialect.fold`."""
        if self._stream is not None and event.data.strip() == self._stream.end:
            answer.ended = True
            return ""
        document = self.document(event.data.encode())
        if self._note_error(document, answer):
            return ""
        if event.name == "error":
            answer.error = document
            return ""
        text = output_text(self._delta.find(document))
        shown = "" if text is None else answer.add(text)
        self._note_end(document, answer)
        answer.ended = bool(self._done.find(document))
        return shown

    def error(self, headers: Mapping[str, str], body: bytes) -> ErrorBody:
        """See `Dialect.error`."""
        usual = ErrorBody.parse(body)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return usual
        kind, message = self._error_in(document)
        kinds = (kind.lower(), *usual.kinds) if kind else usual.kinds
        return ErrorBody(kinds, message or usual.message, usual.error)

    def look(self, handle: str) -> str:
        """See `Dialect.look`."""
        if self._polling is None:
            return super().look(handle)
        try:
            return self._polling.look.render({"handle": _usable(handle)})
        except TemplateError as error:
            raise UnreadableError(str(error)) from error

    def cancel(self, handle: str) -> str | None:
        """See `Dialect.cancel`."""
        if self._polling is None or self._polling.cancel is None:
            return None
        try:
            return self._polling.cancel.render({"handle": handle})
        except TemplateError:
            return None

    def _filled(self, template: PathTemplate | JsonTemplate, request: Request) -> Any:
        try:
            return template.render(self._names(request))
        except TemplateError as error:
            raise UnmappableError(str(error)) from error

    def _names(self, request: Request) -> dict[str, Any]:
        """The names that templates may use; ``system`` and ``prompt`` only if there is such a message."""
        names = {
            "model": request.model,
            "messages": request.messages,
            "params": request.params,
            "stream": request.stream and self.streams,
        }
        system = [message["content"] for message in request.messages if message["role"] in _SYSTEM_ROLES]
        asked = [message["content"] for message in request.messages if message["role"] == "user"]
        if system:
            names["system"] = "\n\n".join(system)
        return {**names, "prompt": asked[-1]} if asked else names

    def _is_over(self, polling: _Polling, document: Any, answer: Answer) -> bool:
        """Whether the answer is complete; if not, note its state."""
        reported = polling.status.find(document)
        status = reported if isinstance(reported, str) else json.dumps(reported)
        if status in polling.settings.done:
            return True
        if status in polling.settings.failed:
            raise UnreadableError(f"the call ended as {status}")
        text = output_text(self._output.find(document))
        if text is not None:
            answer.add(text)
        handle = polling.handle.find(document)
        if isinstance(handle, int) and not isinstance(handle, bool):
            handle = str(handle)
        if not isinstance(handle, str):
            raise UnreadableError(f"no handle of the call at {polling.settings.handle}")
        answer.pending = Pending(_usable(handle), polling.settings.every_seconds)
        return False

    def _note_error(self, document: Any, answer: Answer) -> bool:
        kind, message = self._error_in(document)
        if kind or message:
            answer.error = {"type": kind, "message": message}
        return bool(kind or message)

    def _error_in(self, document: Any) -> tuple[str, str]:
        kind, message = (path.find(document) for path in self._error)
        return output_text(kind) or "", output_text(message) or ""

    def _note_end(self, document: Any, answer: Answer) -> None:
        asked, answered = (path.find(document) for path in self._counts)
        answer.count(answered, asked)
        answer.counts = self._counts_answers
        reason = self._finish.find(document)
        answer.finish(reason if isinstance(reason, dict) else output_text(reason))


def _usable(handle: str) -> str:
    if not handle or len(handle) > _MOST_HANDLE or not handle.isprintable() or set(handle) <= {"."}:
        raise UnreadableError(f"no handle of a call: {handle[:80]!r}")
    return handle
