"""The protocols that the simulated provider speaks, one file each."""

from fairlane.testing.provider.dialect import Dialect
from fairlane.testing.provider.protocols.anthropic_messages import AnthropicMessages
from fairlane.testing.provider.protocols.azure_openai import AzureOpenAI
from fairlane.testing.provider.protocols.bedrock import Bedrock
from fairlane.testing.provider.protocols.gemini import Gemini, Vertex
from fairlane.testing.provider.protocols.mistral_chat import MistralChat
from fairlane.testing.provider.protocols.ollama import Ollama
from fairlane.testing.provider.protocols.openai_chat import OpenAIChat
from fairlane.testing.provider.protocols.openai_embeddings import OpenAIEmbeddings
from fairlane.testing.provider.protocols.openai_responses import OpenAIResponses
from fairlane.testing.provider.protocols.replicate import Replicate

DIALECTS: tuple[Dialect, ...] = (
    OpenAIChat(),
    OpenAIResponses(),
    AzureOpenAI(),
    MistralChat(),
    OpenAIEmbeddings(),
    AnthropicMessages(),
    Gemini(),
    Vertex(),
    Bedrock(),
    Ollama(),
    Replicate(),
)

__all__ = ["DIALECTS"]
