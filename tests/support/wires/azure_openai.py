"""Azure OpenAI's chat completions on the wire."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from tests.support.scripted_server import Received, event
from tests.support.wires.openai_chat import OpenAIChatWire
from tests.support.wires.wire import Asked

_SAFE = {"hate": {"filtered": False, "severity": "safe"}, "jailbreak": {"filtered": False, "detected": False}}


class AzureOpenAIWire(OpenAIChatWire):
    protocol = "azure_openai"
    base: ClassVar[str] = ""
    key_header: ClassVar[str] = "api-key"

    def path(self, stream: bool = False) -> str:
        return "/openai/deployments/m-1/chat/completions?api-version=2024-10-21"

    def asked(self, received: Received) -> Asked:
        deployment = re.match(r"/openai/deployments/([^/]+)/", received.path)
        assert deployment
        body = received.json
        messages = [(message["role"], message["content"]) for message in body["messages"]]
        return Asked(deployment[1], messages, body.get("temperature"), body.get("max_tokens"))

    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        answer = super().whole(text, reason)
        answer["choices"][0]["content_filter_results"] = _SAFE
        return {**answer, "prompt_filter_results": self._prompt()}

    def begin(self) -> bytes:
        unnamed = {"id": "", "model": "", "object": "", "created": 0}
        return event({"choices": [], **unnamed, "prompt_filter_results": self._prompt()}) + super().begin()

    def _prompt(self) -> list[dict[str, Any]]:
        return [{"prompt_index": 0, "content_filter_results": _SAFE}]
