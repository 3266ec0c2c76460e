"""Connections: named, configured ways to providers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from fairlane.config.connections import checks, presets
from fairlane.config.connections.endpoint import HttpEndpoint, misplaced
from fairlane.config.connections.key_place import KEY_FIELDS, KeyCommand, KeyPlace, key_place, misplaced_keys
from fairlane.core.section import Mistake, Section, validation_error
from fairlane.model.lane import Charge, LaneScope

LimitHeaders: TypeAlias = Literal[
    "openai",
    "anthropic",
    "azure",
    "gemini",
    "bedrock",
    "deepseek",
    "groq",
    "mistral",
    "together",
    "fireworks",
    "cerebras",
    "xai",
    "generic",
]
"""Dialects of rate-limit headers that workers can read: `DIALECTS` in their `providers.limits.table`."""

Authentication: TypeAlias = Literal[
    "bearer", "x-api-key", "api-key", "x-goog-api-key", "sigv4", "google", "none"
]
ErrorClass: TypeAlias = Literal[
    "rate_limited",
    "overloaded",
    "server_error",
    "timed_out",
    "permanent",
    "too_long",
    "quota",
    "auth",
    "invalid",
]


def _in_lower_case(error_map: dict[str, ErrorClass]) -> dict[str, ErrorClass]:
    return {kind.lower(): verdict for kind, verdict in error_map.items()}


ErrorMap = Annotated[dict[str, ErrorClass], AfterValidator(_in_lower_case)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
ANYWHERE = "litellm://"
"""The ``base_url`` that leaves the address to LiteLLM."""

_STRUCTURED = frozenset(
    {"openai", "openai_responses", "azure_openai", "anthropic", "gemini", "vertex", "ollama"}
)
WITHOUT_EMBEDDINGS = frozenset({"anthropic", "vertex", "bedrock", "replicate", "http", "litellm"})
"""Fairlane's own protocols that embed no texts; those of other packages may."""

_GOOGLES_EFFORTS = ("minimal", "low", "medium", "high", "xhigh")
EFFORTS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("low", "medium", "high", "xhigh", "max"),
    "gemini": _GOOGLES_EFFORTS,
    "vertex": _GOOGLES_EFFORTS,
    "ollama": (),
}
"""The values of ``reasoning_effort`` that a protocol accepts. Other protocols pass any value on."""

PARALLEL_TOOLS_ALONE = frozenset({"gemini", "vertex", "ollama"})
"""Protocols without ``parallel_tool_calls = false``."""

SCHEMAS_ALONE = frozenset({"anthropic", "bedrock"})
"""Protocols that hold answers to a JSON schema, but not to JSON of any form."""

ASKS_FOR_NOTHING: Mapping[str, object] = {
    "n": 1,
    "logprobs": False,
    "top_logprobs": 0,
    "logit_bias": {},
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "parallel_tool_calls": True,
    "store": False,
    "modalities": ["text"],
}
"""Values of parameters that change no answer, so that a protocol without these parameters ignores them."""

_CHATS_ALONE = frozenset(
    {
        *("audio", "function_call", "functions", "logit_bias", "modalities", "n", "prediction"),
        "web_search_options",
    }
)
_GOOGLES = _CHATS_ALONE | {"logprobs", "top_logprobs", "verbosity"}
LACKED: Mapping[str, frozenset[str]] = {
    "anthropic": _GOOGLES | {"frequency_penalty", "presence_penalty", "seed", "store"},
    "azure_openai": frozenset(
        {"max_output_tokens", "min_p", "repetition_penalty", "stop_sequences", "top_k"}
    ),
    "gemini": _GOOGLES,
    "ollama": _CHATS_ALONE | {"store", "verbosity"},
    "openai_responses": _CHATS_ALONE
    | {"frequency_penalty", "logprobs", "presence_penalty", "seed", "stop", "top_k"},
    "vertex": _GOOGLES,
}
"""Parameters with which each call over a protocol fails: they would change the answer, and it lacks them."""

AMBIENT = frozenset({"sigv4", "google"})
"""Schemes whose credentials come from the workers' environment: one for all connections."""

_SCHEMES: Mapping[str, Authentication] = {
    "anthropic": "x-api-key",
    "azure_openai": "api-key",
    "gemini": "x-goog-api-key",
    "vertex": "google",
}


class Connection(Section):
    """A named, configured way to a provider."""

    provider: str | None = Field(
        default=None,
        description=f"Provider of this connection: {', '.join(f'`{name}`' for name in presets.PROVIDERS)}, "
        "or one that another package adds. Its preset gives the defaults of the keys below.",
    )

    protocol: checks.ProtocolName = Field(
        description=f"API to speak: {', '.join(f'`{name}`' for name in presets.PROTOCOLS)}, or one that "
        "another package adds. Optional if `provider` is set."
    )
    base_url: str = Field(pattern=r"^(https?://|litellm://$)")
    """Base URL of the API, including the version part. Optional if `provider` is set, unless each account of
    that provider has its own URL."""

    region: str | None = Field(default=None, pattern=r"^[a-z0-9-]{1,40}$")
    """Cloud region, for "bedrock" and "vertex", such as "us-east-1"."""

    project: str | None = Field(default=None, pattern=r"^[a-z0-9:.-]{1,100}$")
    """The Google Cloud project of "vertex"."""

    api_version: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.-]{1,40}$")
    """API version, for "azure_openai" and "anthropic". Default: the one that this release was written for."""

    api_key_env: Variable | None = None
    """Name of the environment variable that holds the API key. Only workers need it. Default: the provider's
    usual one."""

    api_key_file: checks.KeyFile | None = None
    """File, on the workers alone, that holds the API key instead. It is read again when it changes."""

    api_key_command: KeyCommand = ()
    """Program and arguments that print the API key instead, on the workers alone, without a shell. It prints
    the key, or JSON with `access_token` and `expires_on` or `expires_in`."""

    api_key_seconds: float = Field(default=300.0, ge=5, le=86_400)
    """How long the key that `api_key_command` printed is used, if it states no expiry."""

    auth: Authentication | None = None
    """How requests authenticate. "bearer": the key in the header Authorization; a header's name: the key in
    that header; "sigv4" and "google": AWS or Google credentials of the workers; "none". Default: the
    protocol's usual way."""

    models: tuple[str, ...] = ()
    """Models that this connection offers; `*` stands for any part of a name. A run that names another is
    rejected when it is submitted. Default: any model."""

    headers: checks.Headers = Field(default_factory=dict)
    """Headers added to every request. They are not kept secret: do not put keys here."""

    lane_scope: LaneScope | None = None
    """What shares one rate limit, and so one lane. "model": each model has its own; "connection": all models
    share one; "endpoint": all connections to one host and port share one. Default: what the provider's
    documentation says."""

    charge: Charge | None = None
    """Tokens that the provider charges against its limits: "used", or "reserved": the prompt and
    `max_tokens`. A lane's own `charge` overrides it. Default: what the provider does."""

    models_at_once: int | None = Field(default=None, ge=1, le=100)
    """Models that the server holds at once, such as 1 for a single GPU. All models then share one lane, which
    calls them in turn. A lane's own `models_at_once` overrides it. Default: any number."""

    limit_headers: LimitHeaders | None = None
    """Dialect of the provider's rate-limit headers. Default: detected from the host. Headers that only one
    provider uses override it."""

    error_map: ErrorMap = Field(default_factory=dict)
    """Overrides how errors are classified. Each entry maps an error's type, code or HTTP status to
    "rate_limited", "overloaded", "server_error", "timed_out", "permanent", "too_long" (for the model's
    context), "quota", "auth" or "invalid"."""

    reasoning_tags: bool = True
    """Take reasoning between `<think>` and `</think>` out of the start of an answer, as servers without a
    reasoning parser send it. `false` keeps it in the output."""

    stream: bool | Literal["auto"] = "auto"
    """Stream calls. auto: those of a run that somebody listens to, and those to a slow model, whose latest
    calls took long or were cut in silence. A model of which no call has ended yet counts as slow."""

    structured_output: checks.StructuredOutput | None = None
    """What holds judges and agents to a JSON schema. `true`: structured output. `"tool"`: the arguments of a
    tool that they must call. `false`: nothing. Default: as its protocol supports."""

    connect_timeout: float = Field(default=10.0, gt=0, le=3600)
    """Most seconds to connect to the server."""

    proxy: checks.ProxyUrl | None = None
    """HTTP proxy for all requests. Default: none."""

    proxy_credentials_env: Variable | None = None
    """Environment variable, of the workers only, that holds user:password for the proxy."""

    ca_file: checks.UserPath | None = None
    """File of certificates (PEM) to trust beside the system's."""

    client_certificate: checks.UserPath | None = None
    """File with the certificate and key (PEM) that the server asks for."""

    endpoint: HttpEndpoint | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_the_providers_defaults(cls, given: Any) -> Any:
        name = given.get("provider") if isinstance(given, Mapping) else None
        if not isinstance(name, str):
            sdk = isinstance(given, Mapping) and given.get("protocol") == "litellm"
            return {"base_url": ANYWHERE, **given} if sdk else given
        preset = presets.preset_of(name)
        if preset is None:
            raise validation_error(cls, checks.unknown_provider(name))
        known = preset.defaults()
        if any(given.get(field) for field in KEY_FIELDS):
            known.pop("api_key_env", None)
        merged = {**known, **given}
        if isinstance(given.get("error_map"), Mapping):
            merged["error_map"] = {**known.get("error_map", {}), **given["error_map"]}
        if "base_url" not in given:
            missing = checks.missing_address_fields(name, preset, given)
            if missing:
                raise validation_error(cls, *missing)
            merged["base_url"] = preset.address(given)
        return merged

    @model_validator(mode="after")
    def _agrees(self) -> Connection:
        given = {field: getattr(self, field) for field in KEY_FIELDS}
        wrong = list(misplaced(self.protocol, self.endpoint))
        if not wrong and self.models_at_once is not None and self.lane_scope == "model":
            problem = 'needs one lane for all models, and lane_scope is "model"'
            remedy = 'Leave lane_scope out, or write lane_scope = "connection".'
            wrong.append(Mistake(("models_at_once",), problem, remedy, self.models_at_once))
        needed = {True: "response_format", "tool": "tools"}.get(self.structured_output or "")
        if self.endpoint is not None and needed is not None and self.endpoint.unsent({needed: needed}):
            problem = f"needs {needed}, and no template of the endpoint sends it"
            remedy = f'Leave it out, or write "{{{{ params.{needed} }}}}" into endpoint.body.'
            wrong.append(Mistake(("structured_output",), problem, remedy, self.structured_output))
        if wrong := wrong or list(misplaced_keys(given, self.scheme, self.protocol)):
            raise validation_error(type(self), *wrong)
        return self

    @property
    def preset(self) -> presets.Preset | None:
        """The preset of its provider; without one, that of the only provider that speaks its protocol."""
        name = self.provider or presets.PROVIDER_OF_PROTOCOL.get(self.protocol)
        return None if name is None else presets.preset_of(name)

    @property
    def structured(self) -> bool:
        """Whether its answers can be held to a JSON schema."""
        return (
            self.protocol in _STRUCTURED if self.structured_output is None else self.structured_output is True
        )

    @property
    def tooled(self) -> bool:
        """Whether the arguments of a tool take the place of a JSON schema."""
        if self.structured_output is None:
            return self.protocol == "bedrock"
        return self.structured_output == "tool"

    @property
    def takes_responses(self) -> bool:
        """Whether it takes requests of OpenAI's Responses API as they are."""
        return self.protocol == "openai_responses"

    @property
    def scheme(self) -> Authentication:
        """The authentication scheme of its requests."""
        if self.auth is not None:
            return self.auth
        if self.protocol == "bedrock":
            return "bearer" if self.key_place else "sigv4"
        return _SCHEMES.get(self.protocol, "bearer")

    @property
    def key_place(self) -> KeyPlace | None:
        """Where workers find its key; ``None`` if the settings name no place."""
        return key_place(self.api_key_env, self.api_key_file, self.api_key_command)

    @property
    def needed_key(self) -> KeyPlace | None:
        """The place of the key without which the provider rejects its calls; ``None`` if it needs none."""
        return None if self.scheme == "none" or self.scheme in AMBIENT else self.key_place

    @property
    def lane_parts(self) -> tuple[presets.LanePart, ...]:
        """What two calls must have in common to share its limits."""
        usual = presets.lane_of_protocol(self.protocol) if self.preset is None else self.preset.lane
        if self.lane_scope == "endpoint" or (self.lane_scope is None and self.models_at_once is None):
            return usual
        parts: tuple[presets.LanePart, ...] = tuple(part for part in usual if part != "model")
        return (*parts, "model") if self.lane_scope == "model" else parts

    @cached_property
    def scope(self) -> LaneScope:
        """What shares one lane: a model's calls, the whole connection's, or those of its server."""
        if self.lane_scope is not None:
            return self.lane_scope
        if self.protocol == "http":
            return "endpoint"
        return "model" if "model" in self.lane_parts else "connection"

    @property
    def charges(self) -> Charge:
        """Which tokens the provider charges: "used" or "reserved"."""
        return self.charge or ("used" if self.preset is None else self.preset.charge)

    def lane_defaults(self, model: str) -> dict[str, Any]:
        """The provider's defaults for a lane of this connection: fields of `LaneLimits`."""
        preset = self.preset
        known = dict(preset.limits) if preset else {}
        if self.charges != "used":
            known["charge"] = self.charges
        if self.models_at_once is not None:
            known["models_at_once"] = self.models_at_once
        factor = preset.output_factor(model) if preset else 1.0
        return known if factor == 1 else {**known, "output_factor": factor}
