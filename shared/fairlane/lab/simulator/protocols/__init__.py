"""The protocols that the simulated provider speaks, one file each.

The simulator's server uses them; they import `wire` and `limits`, and no table of the workers.
"""

from fairlane.lab.simulator.protocols.anthropic_messages import AnthropicMessages
from fairlane.lab.simulator.protocols.bedrock import Bedrock
from fairlane.lab.simulator.protocols.google.gemini import Gemini, GeminiEmbeddings, Vertex
from fairlane.lab.simulator.protocols.ollama import Ollama
from fairlane.lab.simulator.protocols.openai.azure import AzureOpenAI
from fairlane.lab.simulator.protocols.openai.chat import OpenAIChat
from fairlane.lab.simulator.protocols.openai.embeddings import (
    AzureEmbeddings,
    MistralEmbeddings,
    OpenAIEmbeddings,
)
from fairlane.lab.simulator.protocols.openai.mistral import MistralChat
from fairlane.lab.simulator.protocols.openai.responses import OpenAIResponses
from fairlane.lab.simulator.protocols.replicate import Replicate
from fairlane.lab.simulator.protocols.token_counts import (
    AnthropicCount,
    BedrockCount,
    GeminiCount,
    OpenAICount,
    VertexCount,
)
from fairlane.lab.simulator.wire.dialect import Dialect

DIALECTS: tuple[Dialect, ...] = (
    OpenAIChat(),
    OpenAIResponses(),
    AzureOpenAI(),
    MistralChat(),
    OpenAIEmbeddings(),
    AzureEmbeddings(),
    MistralEmbeddings(),
    AnthropicMessages(),
    AnthropicCount(),
    Gemini(),
    GeminiEmbeddings(),
    GeminiCount(),
    Vertex(),
    VertexCount(),
    Bedrock(),
    BedrockCount(),
    OpenAICount(),
    Ollama(),
    Replicate(),
)

__all__ = ["DIALECTS"]
