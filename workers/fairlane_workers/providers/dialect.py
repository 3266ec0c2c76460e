"""What tells one protocol from another: where to post, what to post, and how to read the reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fairlane_workers.providers.answer import Answer
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.sse import ServerSentEvent


class Dialect(Protocol):
    """One protocol. Stateless: all state of a call is in its `Answer`."""

    @property
    def protocol(self) -> str:
        """Its name in the settings."""
        ...

    @property
    def path(self) -> str:
        """What follows the connection's base URL."""
        ...

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The headers that this protocol asks for, credentials included; made once per connection."""
        ...

    def body(self, request: Request) -> dict[str, Any]:
        """The JSON body of a request."""
        ...

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """Fill in ``answer`` from a whole reply. Raises `UnreadableError` where the schema is violated."""
        ...

    def fold(self, event: ServerSentEvent, answer: Answer) -> str:
        """Add one streamed event to ``answer``; returns its new text. Raises `UnreadableError`."""
        ...
