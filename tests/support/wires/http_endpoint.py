"""A custom HTTP endpoint on the wire, which the configuration describes.

Its requests have OpenAI's form, so that the simulated provider accepts them. Its answers have a form of their
own; the description also finds the simulated provider's.
"""

from __future__ import annotations

from typing import Any

from tests.support.scripted_server import Received
from tests.support.wires.openai_chat import OpenAIChatWire
from tests.support.wires.wire import Asked

DESCRIBED: dict[str, Any] = {
    "path": "/chat/completions",
    "body": {
        "model": "{{ model }}",
        "messages": "{{ messages }}",
        "stream": "{{ stream }}",
        "stream_options": "{{ {'include_usage': true} if stream else none }}",
        "temperature": "{{ params.temperature }}",
        "max_tokens": "{{ params.max_tokens }}",
    },
    "output": "choices[0].message.content",
    "input_tokens": "usage.prompt_tokens",
    "output_tokens": "usage.completion_tokens",
    "finish_reason": "choices[0].finish_reason",
    "error_kind": "error.type",
    "error_message": "error.message",
    "stream": {"delta": "choices[0].delta.content", "end": "[DONE]"},
}


class HttpEndpointWire(OpenAIChatWire):
    protocol = "http"
    answers_as = None

    def settings(self, url: str) -> dict[str, Any]:
        return {**super().settings(url), "endpoint": DESCRIBED}

    def asked(self, received: Received) -> Asked:
        assert received.json.keys() <= DESCRIBED["body"].keys()
        return super().asked(received)
