"""A connection: a named, configured way to a provider."""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from fairlane.lane import Charge, LaneScope
from fairlane.presets import LANE_OF_PROTOCOL, PRESETS, LanePart, Preset, ProviderName
from fairlane.section import Section

Protocol: TypeAlias = Literal[
    "openai",
    "openai_responses",
    "azure_openai",
    "anthropic",
    "gemini",
    "vertex",
    "bedrock",
    "replicate",
    "ollama",
    "http",
    "litellm",
]
"""What the workers can speak: `fairlane_workers.providers.registry`."""

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
"""The ways to tell limits that the workers can read: `fairlane_workers.providers.limits.DIALECTS`."""

Authentication: TypeAlias = Literal[
    "bearer", "x-api-key", "api-key", "x-goog-api-key", "sigv4", "google", "none"
]
ErrorClass: TypeAlias = Literal[
    "rate_limited", "overloaded", "timed_out", "permanent", "quota", "auth", "invalid"
]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")]
HeaderValue = Annotated[str, Field(pattern=r"^[\x21-\x7e]([\x20-\x7e]{0,998}[\x21-\x7e])?$")]

_STRUCTURED = frozenset(
    {"openai", "openai_responses", "azure_openai", "anthropic", "gemini", "vertex", "ollama"}
)
_SECRET_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "host"})
_SCHEMES: Mapping[str, Authentication] = {
    "anthropic": "x-api-key",
    "azure_openai": "api-key",
    "gemini": "x-goog-api-key",
    "vertex": "google",
}


class Connection(Section):
    """A named, configured way to a provider."""

    provider: ProviderName | None = Field(
        default=None,
        description="Whose it is: `fairlane connections` lists them. What is left out below is then as that "
        "provider has it.",
    )
    protocol: Protocol = Field(description="The API it speaks. Left out: the provider's.")
    base_url: str = Field(
        pattern=r"^https?://",
        description="Where it is, up to and with the version part. Left out: where the provider is.",
    )
    region: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9-]{1,40}$",
        description='Of "bedrock" and "vertex", such as "us-east-1".',
    )
    project: str | None = Field(
        default=None, pattern=r"^[a-z0-9:.-]{1,100}$", description='The Google Cloud project of "vertex".'
    )
    api_version: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9.-]{1,40}$",
        description='Of "azure_openai" and "anthropic". Left out: the one that this release was made for.',
    )
    api_key_env: Variable | None = Field(
        default=None,
        description="Environment variable, of the workers only, that holds the key. "
        "Left out: the provider's usual one.",
    )
    auth: Authentication | None = Field(
        default=None,
        description='How the key goes: "bearer": Authorization; a header\'s name; "sigv4": signed with the '
        'workers\' AWS credentials; "google": with Google\'s; "none". Left out: as the protocol has it.',
    )
    headers: dict[HeaderName, HeaderValue] = Field(
        default_factory=dict, description="Sent with every request. They are no secret; keys do not go here."
    )
    lane_scope: LaneScope | None = Field(
        default=None,
        description='"model": each model has its own limit; "connection": all share one; "endpoint": '
        "whatever is called at that host and port does. Left out: as the provider limits.",
    )
    charge: Charge | None = Field(
        default=None,
        description='Tokens that the provider charges: "used", or "reserved": the prompt and `max_tokens`. '
        "Lanes may say otherwise. Left out: as the provider does.",
    )
    limit_headers: LimitHeaders | None = Field(
        default=None,
        description="How the provider tells its limits. Left out: the host shows it. "
        "Headers that one provider alone uses show it in any case.",
    )
    error_map: dict[str, ErrorClass] = Field(
        default_factory=dict,
        description="What errors mean, by their type, their code or their HTTP status, ahead of what is "
        'known of them: "rate_limited", "overloaded", "timed_out", "permanent", "quota", "auth", "invalid".',
    )
    stream: bool = Field(default=True, description="Stream task calls, so that listeners see chunks.")
    structured_output: bool | None = Field(
        default=None,
        description="Whether its answers can be held to a JSON schema. Left out: as the protocol can.",
    )
    connect_timeout: float = Field(default=10.0, gt=0, description="Seconds to reach the server.")
    proxy: str | None = Field(
        default=None, pattern=r"^https?://", description="HTTP proxy to go through. Left out: none."
    )
    ca_file: Path | None = Field(
        default=None, description="Certificates (PEM) to trust besides the usual ones."
    )
    client_certificate: Path | None = Field(
        default=None, description="Certificate and key (PEM) to show to the server."
    )
    http2: bool = Field(default=False, description="Speak HTTP/2 where the server does. Needs `http2`.")

    @model_validator(mode="before")
    @classmethod
    def _with_the_providers_defaults(cls, given: Any) -> Any:
        name = given.get("provider") if isinstance(given, Mapping) else None
        preset = PRESETS.get(name) if isinstance(name, str) else None  # type: ignore[call-overload]
        if preset is None:
            return given
        merged = {**preset.defaults(), **given}
        if "base_url" not in given:
            merged["base_url"] = _filled(preset, given)
        return merged

    @model_validator(mode="after")
    def _headers_hold_no_key(self) -> Connection:
        for name in self.headers:
            if name.lower() in _SECRET_HEADERS:
                raise ValueError(f"headers: {name} is not set here; name a key's variable in api_key_env")
        return self

    @property
    def preset(self) -> Preset | None:
        return None if self.provider is None else PRESETS[self.provider]

    @property
    def structured(self) -> bool:
        return self.protocol in _STRUCTURED if self.structured_output is None else self.structured_output

    @property
    def scheme(self) -> Authentication:
        """How requests are authenticated."""
        if self.auth is not None:
            return self.auth
        if self.protocol == "bedrock":
            return "bearer" if self.api_key_env else "sigv4"
        return _SCHEMES.get(self.protocol, "bearer")

    @property
    def lane_parts(self) -> tuple[LanePart, ...]:
        """What its limits depend on."""
        usual = LANE_OF_PROTOCOL[self.protocol] if self.preset is None else self.preset.lane
        if self.lane_scope is None or self.lane_scope == "endpoint":
            return usual
        parts = tuple(part for part in usual if part != "model")
        return (*parts, "model") if self.lane_scope == "model" else parts

    @property
    def scope(self) -> LaneScope:
        if self.lane_scope is not None:
            return self.lane_scope
        if self.protocol == "http":
            return "endpoint"
        return "model" if "model" in self.lane_parts else "connection"

    @property
    def charges(self) -> Charge:
        """What of the tokens the provider charges."""
        return self.charge or ("used" if self.preset is None else self.preset.charge)


def _filled(preset: Preset, given: Mapping[str, Any]) -> str:
    """The preset's address. Raises ``ValueError`` where the configuration lacks a part of it."""
    if preset.base_url is None:
        raise ValueError(f"base_url: {preset.title} has no common address; write one like {preset.example}")
    parts = [name for _, name, _, _ in string.Formatter().parse(preset.base_url) if name]
    for part in parts:
        if not given.get(part):
            raise ValueError(f"{part}: {preset.title} needs it, or a base_url")
    return preset.base_url.format(**{part: given[part] for part in parts})
