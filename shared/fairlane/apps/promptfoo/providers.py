"""Providers: which of our connections and models they mean, and with which parameters they are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlane.apps.promptfoo.files import FILE, Files
from fairlane.apps.promptfoo.problems import Place, Problems
from fairlane.config.problems import did_you_mean
from fairlane.model.lane import FUNCTIONS, split_model

_CHAT = frozenset(("chat", "messages"))
_EMBEDS = frozenset(("embedding", "embeddings"))
_OTHER = frozenset(
    (
        *("completion", "responses", "embedding", "embeddings", "image", "realtime"),
        *("moderation", "transcription", "speech", "tts", "video", "assistant", "agents"),
        *("agent", "codex", "codex-sdk", "live"),
    )
)
_CODE = frozenset(("exec", "python", "javascript", "file", "package", "golang", "ruby", "browser", "script"))
_NO_MODEL = frozenset(("http", "https", "webhook", "ws", "wss", "websocket", "promptfoo", "mcp", "sequence"))

PARAMS = frozenset(
    (
        *("temperature", "max_tokens", "max_completion_tokens", "top_p", "top_k", "min_p"),
        *("stop", "stop_sequences", "seed", "frequency_penalty", "presence_penalty"),
        *("repetition_penalty", "response_format", "user", "reasoning_effort", "reasoning"),
        *("verbosity", "logit_bias", "thinking", "service_tier"),
    )
)
"""What of a provider's ``config`` is sent with each call."""

_CONNECTION = frozenset(
    (
        *("apiKey", "apiKeyEnvar", "apiKeyRequired", "apiBaseUrl", "apiHost", "organization"),
        *("headers", "baseUrl", "basePath", "apiVersion", "deploymentId", "region"),
        *("projectId", "host"),
    )
)
_IGNORED = frozenset(("cost", "inputCost", "outputCost", "maxRetries", "showThinking", "omitDefaults"))


@dataclass(frozen=True, slots=True)
class Provider:
    """A model to call. ``label`` is what the configuration calls it; ``delay`` is in seconds."""

    label: str
    model: str
    params: Mapping[str, Any] = field(default_factory=dict)
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Providers:
    """Maps providers. ``connections`` are those configured, if known; ``given`` maps ids to our models."""

    connections: frozenset[str] | None
    given: Mapping[str, str]
    files: Files
    problems: Problems

    def all(self, raw: Any, place: Place) -> list[Provider]:
        """Every provider of a configuration's ``providers``."""
        raw, place = self.files.referred(raw, place)
        listed = raw if isinstance(raw, list) else [] if raw is None else [raw]
        found: list[Provider] = []
        for number, each in enumerate(listed):
            inner, where = self.files.referred(each, place / number if isinstance(raw, list) else place)
            for one in inner if isinstance(inner, list) else [inner]:
                if one is not None and (provider := self.one(one, where)):
                    found.append(provider)
        if not listed:
            self.problems.add(place, "there is no provider")
        return found

    def one(self, raw: Any, place: Place, *, embeds: bool = False) -> Provider | None:
        """One provider: its id, or an object with its id and what else is said of it.

        ``embeds``: it is to make embeddings, as an id may say: ``openai:embedding:text-embedding-3-small``.
        """
        if isinstance(raw, str):
            model = self.model(raw, place, embeds=embeds)
            return Provider(raw, model) if model else None
        if not isinstance(raw, Mapping):
            self.problems.add(place, "this is no provider")
            return None
        if "id" not in raw and len(raw) == 1:
            name, options = next(iter(raw.items()))
            inner = dict(options) if isinstance(options, Mapping) else {}
            label = inner.pop("id", None)
            raw, place = {"id": name, **({"label": label} if label else {}), **inner}, place / name
        return self._described(raw, place, embeds=embeds)

    def model(self, identity: str, place: Place, *, embeds: bool = False) -> str | None:
        """``openai:chat:gpt-4o`` → ``openai:gpt-4o``, where a connection ``openai`` is configured."""
        if identity in self.given:
            return self._checked(identity, self.given[identity], place)
        kind, _, rest = identity.partition(":")
        first, _, name = rest.partition(":")
        word = _EMBEDS if embeds else _CHAT
        if name and first in word:
            rest = name
        if problem := _refused(identity, kind, rest):
            self.problems.add(place, problem)
            return None
        return self._checked(identity, f"{kind}:{rest}", place)

    def _checked(self, identity: str, model: str, place: Place) -> str | None:
        try:
            connection, _ = split_model(model)
        except ValueError:
            self.problems.add(place, f"{model!r} names no connection and model")
            return None
        if self.connections is None or connection in (FUNCTIONS, *self.connections):
            return model
        near = did_you_mean(connection, sorted(self.connections))
        remedy = near or f"configure it, or give --map-provider {identity}=<connection>:<model>"
        self.problems.add(place, f"no connection {connection!r} is configured for {identity!r}: {remedy}")
        return None

    def _described(self, raw: Mapping[str, Any], place: Place, *, embeds: bool = False) -> Provider | None:
        identity, label = raw.get("id"), raw.get("label")
        if not isinstance(identity, str):
            self.problems.add(place, "a provider needs an id")
            return None
        for name in raw.keys() - {"id", "label", "config", "delay"}:
            self.problems.add(place / name, f"{name} of a provider is not supported")
        config, where = self.files.referred(raw.get("config") or {}, place / "config")
        params = dict(self._params(identity, config, where)) if isinstance(config, Mapping) else {}
        model = self.model(identity, place / "id", embeds=embeds)
        delay = self._delay(raw.get("delay") or 0, place / "delay")
        return Provider(str(label or identity), model, params, delay) if model else None

    def _delay(self, raw: Any, place: Place) -> float:
        if isinstance(raw, int | float) and raw >= 0:
            return raw / 1000
        self.problems.add(place, "a delay is a number of milliseconds")
        return 0.0

    def _params(self, identity: str, config: Mapping[str, Any], place: Place) -> Iterator[tuple[str, Any]]:
        for name, value in config.items():
            where = place / name
            if name in _IGNORED or (name in _CONNECTION and identity in self.given):
                continue
            if name in ("passthrough", "extra_body") and isinstance(value, Mapping):
                yield from value.items()
            elif name in _CONNECTION:
                remedy = (
                    f"describe the connection there, and give --map-provider {identity}=<connection>:<model>"
                )
                self.problems.add(where, f"{name} is a matter of the connection, in fairlane.toml: {remedy}")
            elif name not in PARAMS:
                near = did_you_mean(name, sorted(PARAMS))
                remedy = near or "put it under passthrough to send it as it is"
                self.problems.add(where, f"the parameter {name} is not supported: {remedy}")
            elif isinstance(value, str) and "{{" in value:
                self.problems.add(where, "parameters are no templates: write the value")
            elif isinstance(value, str) and value.startswith(FILE):
                yield name, self.files.referred(value, where)[0]
            else:
                yield name, value


def _refused(identity: str, kind: str, rest: str) -> str | None:
    remedy = f"give --map-provider {identity}=<connection>:<model>"
    if kind in _CODE:
        return f"the provider {identity!r} is a program, and programs are not run: {remedy}"
    if kind in _NO_MODEL or not rest:
        return f"the provider {identity!r} names no model of a connection: {remedy}"
    first, separator, _ = rest.partition(":")
    if separator and first in _OTHER:
        return f"the provider {identity!r} is no chat model: only chats are called, or {remedy}"
    return None
