"""Every protocol's wire."""

from tests.support.wires.anthropic_messages import AnthropicMessagesWire
from tests.support.wires.azure_openai import AzureOpenAIWire
from tests.support.wires.bedrock import BedrockWire
from tests.support.wires.gemini import GeminiWire, VertexWire
from tests.support.wires.http_endpoint import HttpEndpointWire
from tests.support.wires.ollama import OllamaWire
from tests.support.wires.openai_chat import OpenAIChatWire
from tests.support.wires.openai_responses import OpenAIResponsesWire
from tests.support.wires.replicate import ReplicateWire
from tests.support.wires.wire import Asked, Wire

WIRES: tuple[Wire, ...] = (
    OpenAIChatWire(),
    OpenAIResponsesWire(),
    AzureOpenAIWire(),
    AnthropicMessagesWire(),
    GeminiWire(),
    VertexWire(),
    BedrockWire(),
    OllamaWire(),
    ReplicateWire(),
    HttpEndpointWire(),
)

__all__ = ["WIRES", "AnthropicMessagesWire", "Asked", "OpenAIChatWire", "Wire"]
