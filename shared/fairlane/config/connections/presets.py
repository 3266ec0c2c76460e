"""Known providers: the address, the protocol and the scope of the limits of each."""

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fairlane.model.lane import Charge

PRESET_GROUP = "fairlane.presets"
"""The entry points that name presets of other packages."""

LanePart: TypeAlias = Literal["credential", "base_url", "region", "model"]
"""What a limit may depend on: two calls that agree in all parts of their provider share one."""


@dataclass(frozen=True, slots=True)
class Preset:
    """The defaults of connections to one provider.

    ``base_url`` may hold ``{region}`` and ``{project}``. It is ``None`` where every account has its own, as
    ``example`` shows. ``elsewhere`` has the URLs of regions with another one. ``lane``: see `LanePart`.
    ``settings`` are further fields of a connection, ``limits`` fields of a lane's limits besides ``charge``.
    ``statuses`` gives the class of an error by its HTTP status, if its code and message do not give one.
    ``output_factors`` are patterns of models (as `fnmatch` has them) whose output tokens count several times.
    """

    title: str
    base_url: str | None
    api_key_env: str | None
    lane: tuple[LanePart, ...]
    limit_headers: str | None = None
    protocol: str = "openai"
    charge: Charge = "used"
    example: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    statuses: Mapping[int, str] = field(default_factory=dict)
    output_factors: tuple[tuple[str, float], ...] = ()

    def defaults(self) -> dict[str, Any]:
        """Defaults for the fields of a connection."""
        fields = {
            "protocol": self.protocol,
            "base_url": self.base_url,
            "api_key_env": self.api_key_env,
            "limit_headers": self.limit_headers,
            **self.settings,
        }
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def address_fields(self) -> tuple[str, ...]:
        """The fields of a connection that its base URL contains."""
        named = (part for _, part, _, _ in string.Formatter().parse(self.base_url or "") if part)
        return tuple(dict.fromkeys(named))

    def address(self, given: Mapping[str, Any]) -> str:
        """The base URL for these fields. Raises ``KeyError`` if one of `address_fields` is missing."""
        url = self.elsewhere.get(str(given.get("region")), self.base_url or "")
        return url.format(**{part: given[part] for part in self.address_fields})

    def output_factor(self, model: str) -> float:
        """How many tokens an output token of a model counts as in the token limits."""
        return next((factor for pattern, factor in self.output_factors if fnmatchcase(model, pattern)), 1.0)


_ACCOUNT: tuple[LanePart, ...] = ("credential",)
_MODEL: tuple[LanePart, ...] = ("credential", "model")

# OpenAI checks its limits before it looks into a cache, so cached input counts.
_CACHE_COUNTS = {"cache_reads": "counted"}
# These send 429s for calls in flight, or none: there is no rate to detect.
_NO_RATE = {"requests_per_minute": 0}
# Some of their models refuse a JSON schema, or all do.
_NO_SCHEMA = {"structured_output": False}

# The quotas of Bedrock: Claude 3.7 and later.
_BURNT_FIVEFOLD = ("*claude-3-7-*", *(f"*claude-{family}-[4-9]*" for family in ("opus", "sonnet", "haiku")))
_VERTEX = "/v1/projects/{project}/locations/{region}"


PRESETS: Mapping[str, Preset] = {
    "openai": Preset(
        "OpenAI",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        ("credential", "base_url", "model"),
        "openai",
        limits=_CACHE_COUNTS,
    ),
    "azure_openai": Preset(
        "Azure OpenAI",
        None,
        "AZURE_OPENAI_API_KEY",
        ("base_url", "model"),
        "azure",
        protocol="azure_openai",
        charge="reserved",
        example="https://example.openai.azure.com",
        limits=_CACHE_COUNTS,
    ),
    "bedrock": Preset(
        "Amazon Bedrock",
        "https://bedrock-runtime.{region}.amazonaws.com",
        None,
        ("region", "model", "credential"),
        "bedrock",
        protocol="bedrock",
        charge="reserved",
        elsewhere=dict.fromkeys(
            ("cn-north-1", "cn-northwest-1"), "https://bedrock-runtime.{region}.amazonaws.com.cn"
        ),
        output_factors=tuple((pattern, 5.0) for pattern in _BURNT_FIVEFOLD),
    ),
    "gemini": Preset(
        "Google Gemini (AI Studio)",
        "https://generativelanguage.googleapis.com/v1beta",
        "GEMINI_API_KEY",
        _MODEL,
        "gemini",
        protocol="gemini",
    ),
    "vertex": Preset(
        "Google Vertex AI",
        "https://{region}-aiplatform.googleapis.com" + _VERTEX,
        None,
        ("base_url", "model"),
        "gemini",
        protocol="vertex",
        elsewhere={
            "global": "https://aiplatform.googleapis.com" + _VERTEX,
            "us": "https://aiplatform.us.rep.googleapis.com" + _VERTEX,
            "eu": "https://aiplatform.eu.rep.googleapis.com" + _VERTEX,
        },
    ),
    "anthropic": Preset(
        "Anthropic",
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        _MODEL,
        "anthropic",
        protocol="anthropic",
    ),
    "xai": Preset("xAI", "https://api.x.ai/v1", "XAI_API_KEY", _MODEL, "xai"),
    "groq": Preset(
        "Groq",
        "https://api.groq.com/openai/v1",
        "GROQ_API_KEY",
        _MODEL,
        "groq",
        settings=_NO_SCHEMA,
        statuses={498: "overloaded"},  # its flex tier has no capacity
    ),
    "deepseek": Preset(
        "DeepSeek",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
        _ACCOUNT,
        "deepseek",
        settings=_NO_SCHEMA,
        limits=_NO_RATE,
    ),
    "qwen": Preset(
        "Qwen (Alibaba Cloud Model Studio)",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        _MODEL,
        # Its 429s say `insufficient_quota` of a minute's tokens; debts are a 400.
        settings={**_NO_SCHEMA, "error_map": {"insufficient_quota": "rate_limited", "arrearage": "quota"}},
    ),
    "ollama": Preset(
        "Ollama", "http://127.0.0.1:11434", None, ("base_url",), protocol="ollama", limits=_NO_RATE
    ),
    "fireworks": Preset(
        "Fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", _ACCOUNT, "fireworks"
    ),
    "mistral": Preset("Mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", _ACCOUNT, "mistral"),
    "together": Preset(
        "Together", "https://api.together.ai/v1", "TOGETHER_API_KEY", _MODEL, "together", settings=_NO_SCHEMA
    ),
    "lepton": Preset(
        "Lepton",
        None,
        "LEPTON_API_TOKEN",
        _ACCOUNT,
        example="https://llama3-1-8b.lepton.run/api/v1",
        settings=_NO_SCHEMA,
    ),
    "cerebras": Preset(
        "Cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", _MODEL, "cerebras", charge="reserved"
    ),
    "replicate": Preset(
        "Replicate",
        "https://api.replicate.com/v1",
        "REPLICATE_API_TOKEN",
        _ACCOUNT,
        protocol="replicate",
    ),
    "baseten": Preset("Baseten", "https://inference.baseten.co/v1", "BASETEN_API_KEY", _ACCOUNT),
    "openrouter": Preset(
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        _MODEL,
        settings=_NO_SCHEMA,
        statuses={403: "permanent"},  # a prompt that moderation flagged
    ),
    "vllm": Preset("vLLM", "http://127.0.0.1:8000/v1", None, ("base_url",), limits=_NO_RATE),
}

PROVIDERS = tuple(PRESETS)
"""The providers that Fairlane itself knows; installed packages may add others."""

if TYPE_CHECKING:
    ProviderName: TypeAlias = str
else:
    ProviderName = Literal[PROVIDERS]

OTHER_NAMES: Mapping[str, str] = {
    "aistudio": "gemini",
    "alibaba": "qwen",
    "aws": "bedrock",
    "azure": "azure_openai",
    "claude": "anthropic",
    "dashscope": "qwen",
    "google": "gemini",
    "grok": "xai",
    "gpt": "openai",
    "vertex_ai": "vertex",
}
"""Other names of providers, which error messages correct."""

PROVIDER_OF_PROTOCOL = {name: name for name in PROVIDERS if name == PRESETS[name].protocol != "openai"}
"""The protocols of a single provider, whose preset applies to a connection that names no provider."""

PROTOCOLS = (
    *("openai", "openai_responses", "azure_openai", "anthropic", "gemini", "vertex", "bedrock"),
    *("replicate", "ollama", "http", "litellm"),
)
"""The protocols that Fairlane itself speaks; installed packages may add others."""


def lane_of_protocol(protocol: str) -> tuple[LanePart, ...]:
    """What a limit of a connection without a preset depends on: everything that may separate two limits."""
    return ("base_url",) if protocol == "http" else ("credential", "base_url", "model")


def preset_of(provider: str) -> Preset | None:
    """The preset of a provider, of Fairlane or of an installed package; ``None`` if none has this name.

    Raises ``ValueError`` for a package whose preset cannot be loaded.
    """
    return PRESETS.get(provider) or _added(provider)


def all_presets() -> dict[str, Preset]:
    """Fairlane's own presets, then those of installed packages. Raises ``ValueError`` as `preset_of` does."""
    added = sorted({point.name for point in entry_points(group=PRESET_GROUP)} - PRESETS.keys())
    return {**PRESETS, **{name: preset for name in added if (preset := _added(name)) is not None}}


@cache
def _added(provider: str) -> Preset | None:
    for point in entry_points(group=PRESET_GROUP, name=provider):
        try:
            preset = point.load()
        except Exception as error:
            raise ValueError(f"the preset {point.value} cannot be loaded: {error}") from error
        if not isinstance(preset, Preset):
            raise ValueError(f"{point.value} is no Preset")  # noqa: TRY004 - pydantic reports values
        return preset
    return None
