"""Endpoints that count a prompt's tokens, as the simulated provider serves them: they use up no limit."""

from collections.abc import Mapping
from typing import Any, ClassVar

from fairlane.lab.simulator.protocols.anthropic_messages import AnthropicMessages
from fairlane.lab.simulator.protocols.bedrock import Bedrock
from fairlane.lab.simulator.protocols.google.gemini import VERTEX, Gemini, Vertex
from fairlane.lab.simulator.protocols.openai.responses import OpenAIResponses
from fairlane.lab.simulator.wire.dialect import NO_PATH, Call, RequestError, write_json


class AnthropicCount(AnthropicMessages):
    """``POST /v1/messages/count_tokens``: a message without ``max_tokens``."""

    paths: ClassVar[tuple[str, ...]] = ("/v1/messages/count_tokens",)
    counts_tokens: ClassVar[bool] = True

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """Reads as a message does; a bound of the answer is unknown here."""
        if isinstance(payload, dict) and "max_tokens" in payload:
            raise RequestError("max_tokens: Extra inputs are not permitted")
        return super().parse({**payload, "max_tokens": 1} if isinstance(payload, dict) else payload)

    def count(self, call: Call) -> bytes:
        """See `Dialect.count`."""
        return write_json({"input_tokens": call.prompt_tokens})


class OpenAICount(OpenAIResponses):
    """``POST /v1/responses/input_tokens``."""

    paths: ClassVar[tuple[str, ...]] = ("/v1/responses/input_tokens",)
    counts_tokens: ClassVar[bool] = True

    def count(self, call: Call) -> bytes:
        """See `Dialect.count`."""
        return write_json({"object": "response.input_tokens", "input_tokens": call.prompt_tokens})


class GeminiCount(Gemini):
    """``countTokens`` of ``contents``, or of a whole ``generateContentRequest``."""

    paths: ClassVar[tuple[str, ...]] = ("/{version:v1|v1beta}/models/{model}:{method:countTokens}",)
    counts_tokens: ClassVar[bool] = True

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """Reads as ``generateContent`` does."""
        whole = payload.get("generateContentRequest") if isinstance(payload, dict) else None
        return super().parse(payload if whole is None else whole, path)

    def count(self, call: Call) -> bytes:
        """See `Dialect.count`."""
        return write_json(_counted(call))


class VertexCount(Vertex):
    """``countTokens`` of a model of Vertex AI."""

    paths: ClassVar[tuple[str, ...]] = (VERTEX + "/publishers/google/models/{model}:{method:countTokens}",)
    counts_tokens: ClassVar[bool] = True

    def count(self, call: Call) -> bytes:
        """See `Dialect.count`; Vertex AI also counts the characters that it bills."""
        characters = sum(not each.isspace() for each in call.prompt)
        return write_json({**_counted(call), "totalBillableCharacters": characters})


class BedrockCount(Bedrock):
    """``POST /model/{model}/count-tokens`` of a Converse request."""

    paths: ClassVar[tuple[str, ...]] = ("/model/{model}/{operation:count-tokens}",)
    counts_tokens: ClassVar[bool] = True

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """The body of a Converse request, in ``input.converse``."""
        match payload:
            case {"input": {"converse": converse}}:
                return super().parse(converse, path)
        raise RequestError("Value at 'input' must have the member converse")

    def count(self, call: Call) -> bytes:
        """See `Dialect.count`."""
        return write_json({"inputTokens": call.prompt_tokens})


def _counted(call: Call) -> dict[str, Any]:
    details = [{"modality": "TEXT", "tokenCount": call.prompt_tokens}]
    return {"totalTokens": call.prompt_tokens, "promptTokensDetails": details}
