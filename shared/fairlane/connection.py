"""A connection: a named, configured way to a provider."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from fairlane.connection_checks import keys_in_headers, missing_places, password_in_proxy, unknown_provider
from fairlane.endpoint import HttpEndpoint, misplaced
from fairlane.lane import Charge, LaneScope
from fairlane.presets import (
    LANE_OF_PROTOCOL,
    OF_PROTOCOL,
    PRESETS,
    LanePart,
    Preset,
    ProviderName,
    preset_of,
)
from fairlane.section import Section, refusal

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
ANYWHERE = "litellm://"
"""The ``base_url`` that leaves the address to LiteLLM."""

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")]
HeaderValue = Annotated[str, Field(pattern=r"^[!-~]$|^[!-~][ -~]{0,998}[!-~]$")]

_STRUCTURED = frozenset(
    {"openai", "openai_responses", "azure_openai", "anthropic", "gemini", "vertex", "ollama"}
)
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
        description="Whose it is: `fairlane connections --providers` lists them. What is left out below "
        "is then as that provider has it.",
    )
    protocol: Protocol = Field(description="The API it speaks. May be left out beside `provider`.")
    base_url: str = Field(
        pattern=r"^(https?://|litellm://$)",
        description="Where it is, up to and with the version part. May be left out beside `provider`, "
        "unless every account has its own.",
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
    proxy_credentials_env: Variable | None = Field(
        default=None,
        description="Environment variable, of the workers only, that holds user:password for the proxy.",
    )
    ca_file: Path | None = Field(
        default=None, description="Certificates (PEM) to trust besides the usual ones."
    )
    client_certificate: Path | None = Field(
        default=None, description="Certificate and key (PEM) to show to the server."
    )
    http2: bool = Field(default=False, description="Speak HTTP/2 where the server does. Needs `http2`.")

    endpoint: HttpEndpoint | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_the_providers_defaults(cls, given: Any) -> Any:
        name = given.get("provider") if isinstance(given, Mapping) else None
        if not isinstance(name, str):
            sdk = isinstance(given, Mapping) and given.get("protocol") == "litellm"
            return {"base_url": ANYWHERE, **given} if sdk else given
        preset = preset_of(name)
        if preset is None:
            raise refusal(cls, unknown_provider(name))
        known = preset.defaults()
        merged = {**known, **given}
        if isinstance(given.get("error_map"), Mapping):
            merged["error_map"] = {**known.get("error_map", {}), **given["error_map"]}
        if "base_url" not in given:
            missing = missing_places(name, preset, given)
            if missing:
                raise refusal(cls, *missing)
            merged["base_url"] = preset.address(given)
        return merged

    @model_validator(mode="after")
    def _has_its_endpoint(self) -> Connection:
        if wrong := list(misplaced(self.protocol, self.endpoint)):
            raise refusal(type(self), *wrong)
        return self

    @field_validator("headers")
    @classmethod
    def _hold_no_key(cls, headers: dict[str, str]) -> dict[str, str]:
        if wrong := keys_in_headers(headers):
            raise refusal(cls, *wrong)
        return headers

    @field_validator("error_map")
    @classmethod
    def _in_lower_case(cls, error_map: dict[str, ErrorClass]) -> dict[str, ErrorClass]:
        return {kind.lower(): verdict for kind, verdict in error_map.items()}

    @field_validator("proxy")
    @classmethod
    def _holds_no_password(cls, proxy: str | None) -> str | None:
        if wrong := password_in_proxy(proxy or ""):
            raise refusal(cls, *wrong)
        return proxy

    @property
    def preset(self) -> Preset | None:
        """What is known of its provider; of one that it does not name, by a protocol that no other speaks."""
        name = self.provider or OF_PROTOCOL.get(self.protocol)
        return None if name is None else PRESETS[name]

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
        parts: tuple[LanePart, ...] = tuple(part for part in usual if part != "model")
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

    def lane_defaults(self, model: str) -> dict[str, Any]:
        """What is known of a lane of its without a word of the operator's: fields of `LaneLimits`."""
        preset = self.preset
        known = dict(preset.limits) if preset else {}
        if self.charges != "used":
            known["charge"] = self.charges
        factor = preset.output_factor(model) if preset else 1.0
        return known if factor == 1 else {**known, "output_factor": factor}
