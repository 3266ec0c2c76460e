"""The protocols that the simulated provider speaks, one file each."""

from fairlane.testing.provider.dialect import Dialect
from fairlane.testing.provider.protocols.anthropic_messages import AnthropicMessages
from fairlane.testing.provider.protocols.openai_chat import OpenAIChat

DIALECTS: tuple[Dialect, ...] = (
    OpenAIChat(),
    AnthropicMessages(),
)

__all__ = ["DIALECTS"]
