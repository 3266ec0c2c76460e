"""Chat completions at Mistral: OpenAI's, but it rejects parameters that it does not know."""

from __future__ import annotations

from typing import Any

from fairlane.config.connection import Connection
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.protocols.openai.chat import OpenAIChat
from fairlane_workers.providers.protocols.openai.published import leads_to

_NAMES = {"max_completion_tokens": "max_tokens", "seed": "random_seed"}


class MistralChat(OpenAIChat):
    """OpenAI's dialect without ``stream_options``: Mistral always sends usage, and rejects the option with a
    422.
    """

    @staticmethod
    def is_spoken_at(connection: Connection) -> bool:
        """Whether a connection of the protocol "openai" leads to Mistral."""
        return leads_to(connection, "mistral", "mistral.ai")

    def body(self, request: Request) -> dict[str, Any]:
        """See `Dialect.body`."""
        body = super().body(request)
        if "stream_options" not in request.params:
            body.pop("stream_options", None)
        for name, theirs in _NAMES.items():
            if name in body:
                body.setdefault(theirs, body.pop(name))
        return body
