"""Every protocol's wire."""

from tests.support.wires.anthropic_messages import AnthropicMessagesWire
from tests.support.wires.openai_chat import OpenAIChatWire
from tests.support.wires.wire import Asked, Wire

WIRES: tuple[Wire, ...] = (
    OpenAIChatWire(),
    AnthropicMessagesWire(),
)

__all__ = ["WIRES", "AnthropicMessagesWire", "Asked", "OpenAIChatWire", "Wire"]
