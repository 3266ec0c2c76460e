"""What the simulated provider is told: one table a model, read from TOML or built in Python."""

from __future__ import annotations

import difflib
import math
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from fairlane.errors import ConfigurationError
from fairlane.presets import ProviderName
from fairlane.testing.provider.vendors import VENDORS

Probability = Annotated[float, Field(ge=0, le=1)]
Window = tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(gt=0)]]
"""``(start, duration)`` in seconds."""
Change = tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(gt=0)]]
"""``(at, requests per minute)``, ``at`` in seconds."""
Stretch = tuple[
    Annotated[float, Field(ge=0)], Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0, le=600_000)]
]
"""``(start, duration, requests per minute)``, the first two in seconds."""
HeaderStyle = Literal[
    "protocol", "groq", "azure", "together", "mistral", "fireworks", "cerebras", "xai", "ietf"
]
LimitShape = Literal["bucket", "window", "sliding", "second"]
WindowSeconds = Annotated[float, Field(ge=0.001, le=86_400)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Faults(_Table):
    """How likely an admitted request meets each fault; at most one befalls a request."""

    error_500: Probability = Field(default=0.0, description="500, before any work.")
    error_502: Probability = Field(default=0.0, description="502 with an HTML page, as gateways send it.")
    error_503: Probability = Field(default=0.0, description="503, before any work.")
    error_529: Probability = Field(default=0.0, description="529 overloaded, before any work.")
    error_in_stream: Probability = Field(
        default=0.0, description="An error event after the first chunk; 529 where nothing is streamed."
    )
    reset: Probability = Field(default=0.0, description="The connection is reset before any work.")
    reset_after_work: Probability = Field(
        default=0.0, description="The work is done and counted, then the connection is reset."
    )
    hang: Probability = Field(default=0.0, description="No answer, ever.")
    malformed: Probability = Field(default=0.0, description="200 with broken JSON.")
    cut_stream: Probability = Field(default=0.0, description="The connection closes in mid-answer.")

    @model_validator(mode="after")
    def _at_most_one(self) -> Faults:
        total = math.fsum(self.probabilities().values())
        if total > 1 + 1e-9:
            raise ValueError(f"the probabilities add up to {total:g}; at most 1 is possible")
        return self

    def probabilities(self) -> dict[str, float]:
        """Every fault's probability, by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class SimulatedModel(_Table):
    """One model: what it allows, how long it takes, what it says and how it breaks."""

    provider: ProviderName | None = Field(
        default=None,
        description="Whose way to count, to limit and to tell of it what is left out below takes. Left out: "
        "the defaults.",
    )
    requests_per_minute: float | None = Field(default=None, gt=0, description="Left out: not limited.")
    tokens_per_minute: float | None = Field(default=None, gt=0, description="Left out: not limited.")
    input_tokens_per_minute: float | None = Field(default=None, gt=0, description="Left out: not limited.")
    output_tokens_per_minute: float | None = Field(default=None, gt=0, description="Left out: not limited.")
    requests_per_day: int | None = Field(
        default=None, ge=1, description="Days are counted from the start. Left out: not limited."
    )
    shape: LimitShape = Field(
        default="bucket",
        description='How the limits a minute are judged; "bucket": refilled by the millisecond; "window": '
        'fixed windows from the start, each with its whole count at once; "sliding": the count in any '
        'window; "second": fixed windows of a second, each a sixtieth of the minute.',
    )
    token_shape: LimitShape | None = Field(
        default=None, description="The same for the token limits. Left out: as shape."
    )
    window_seconds: WindowSeconds = Field(default=60.0, description='Length of a "window" or "sliding" one.')
    token_window_seconds: WindowSeconds | None = Field(
        default=None, description="The same for the token limits. Left out: as window_seconds."
    )
    burst_seconds: float = Field(
        default=1.0,
        gt=0,
        le=3600,
        description="A full bucket holds this many seconds of its rate, at least 1.",
    )
    charge: Literal["actual", "reserved"] = Field(
        default="actual",
        description='Tokens a request costs: "actual": prompt and the output it is going to produce; '
        '"reserved": prompt and max_tokens.',
    )
    output_factor: float = Field(
        default=1.0, gt=0, le=100, description="What a token of output counts in the token limits."
    )
    limit_changes: tuple[Change, ...] = Field(
        default=(), description="[at, requests_per_minute]: from so many seconds after the start on."
    )
    foreign: tuple[Stretch, ...] = Field(
        default=(),
        description="[start, duration, requests_per_minute], in seconds from the start: requests of others "
        "who use the same limits, evenly spaced.",
    )
    foreign_tokens: int = Field(default=0, ge=0, description="Tokens each of those costs, all of them input.")
    acceleration: float | None = Field(
        default=None,
        gt=0,
        description="The requests admitted in a minute are at most this many times those of the minute "
        "before, or acceleration_floor.",
    )
    acceleration_floor: int = Field(
        default=60, ge=1, description="Requests a minute that are never too fast."
    )
    shrink_on_overrun: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Each second in which requests are refused multiplies the limits a minute by this, to a "
        "twentieth at least; each admitted request gives back half of what it uses, until they are whole.",
    )
    initial_share: float = Field(
        default=1.0,
        ge=0.05,
        le=1,
        description="Share of the limits a minute that is in force at the start; requests that are admitted "
        "raise it, as after an overrun.",
    )
    max_concurrency: int | None = Field(
        default=None, ge=1, description="Requests served at a time. Left out: not limited."
    )
    queue: int = Field(
        default=0,
        ge=0,
        description="Requests beyond max_concurrency that wait for a place; above it refused.",
    )
    concurrency_status: Literal[429, 503] = Field(default=429, description="What those are answered.")

    latency_ms: float = Field(default=200.0, ge=0, description="Median latency.")
    latency_sigma: float = Field(default=0.0, ge=0, le=3, description="Lognormal spread; 0 is constant.")
    keep_alive: bool = Field(
        default=False,
        description="While an answer is being made, blank lines are sent, or comments where it is streamed.",
    )
    chunks: int = Field(default=4, ge=1, le=1000, description="Pieces of a streamed answer.")
    first_chunk_share: float = Field(
        default=0.25, ge=0, le=1, description="Share of the latency that passes before the first piece."
    )
    output_tokens: float = Field(default=32.0, ge=1, description="Mean length of an answer.")
    output_tokens_stddev: float = Field(default=0.0, ge=0, description="Its standard deviation.")
    max_output_tokens: int = Field(
        default=4096, ge=1, description="Longest answer; also what max_tokens is where a request has none."
    )

    output: Literal["text", "echo", "fixed", "answers", "judge", "schema", "tool"] = Field(
        default="text",
        description='"text": filler of the drawn length; "echo": the last user message; "fixed": fixed_text; '
        '"answers": the answer from answers_file; "judge": "yes" or "no"; "schema": JSON that follows the '
        'schema a request asks for, filler where it asks for none; "tool": the first tool that a request '
        "offers is called.",
    )
    fixed_text: str = Field(default="ok", min_length=1, description='What output = "fixed" says.')
    answers_file: Path | None = Field(
        default=None, description="JSONL with question and answer, the final answer after ####."
    )
    answer_style: Literal["worked", "plain"] = Field(
        default="worked", description='"worked": filler that ends with "#### 18"; "plain": "18" alone.'
    )
    schema_omits: tuple[str, ...] = Field(
        default=(), description='What output = "schema" leaves out of a list: entries named so.'
    )
    schema_breaks: tuple[str, ...] = Field(
        default=(), description="Entries of a list that break the schema: their numbers are words."
    )
    accuracy: Probability = Field(default=1.0, description="Share of questions answered right.")
    judge_accuracy: Probability = Field(default=1.0, description="Share of prompts judged right.")

    headers: Literal["none", "retry_after", "ratelimit", "full"] = Field(
        default="none",
        description='Hints: "retry_after" on a 429; "ratelimit": limit, remaining and reset on every answer, '
        'as the protocol names them, and the numbers in a refusal; "full": both.',
    )
    retry_after_form: Literal["default", "milliseconds", "seconds", "fraction", "date"] = Field(
        default="default",
        description='How it is written; "default": openai milliseconds and seconds, anthropic seconds.',
    )
    header_style: HeaderStyle = Field(
        default="protocol",
        description='Whose names the hints have; "protocol": openai or anthropic, as the request was made; '
        '"groq": requests are those of the day; "azure": whole seconds, and a token 429 says 0; "together": '
        'limits a second; "mistral", "fireworks", "cerebras", "xai": by their own names; "ietf": '
        "ratelimit-limit and so on, of the axis with the least left.",
    )
    success_retry_after_ms: int | None = Field(
        default=None, ge=0, description="A Retry-After that every 200 carries, whatever headers says."
    )

    faults: Faults = Faults()
    burst_429: tuple[Window, ...] = Field(
        default=(), description="[start, duration] in seconds: every request is answered 429."
    )
    outages: tuple[Window, ...] = Field(
        default=(), description="[start, duration] in seconds: every connection is reset at once."
    )
    windows_from: Literal["first_request", "start"] = Field(
        default="first_request", description="What those windows are counted from."
    )
    status_always: Annotated[int, Field(ge=400, le=599)] | Literal["insufficient_quota"] | None = Field(
        default=None,
        description='Answer everything with this status; "insufficient_quota" is a 429 that stops.',
    )

    @model_validator(mode="before")
    @classmethod
    def _as_the_provider_does(cls, given: Any) -> Any:
        name = given.get("provider") if isinstance(given, dict) else None
        return {**VENDORS.get(name, {}), **given} if isinstance(name, str) else given

    @model_validator(mode="after")
    def _answers_have_a_source(self) -> SimulatedModel:
        if (self.output == "answers") != (self.answers_file is not None):
            raise ValueError('output = "answers" and answers_file go together: set both or neither')
        return self

    @model_validator(mode="after")
    def _limits_are_complete(self) -> SimulatedModel:
        if self.limit_changes and self.requests_per_minute is None:
            raise ValueError("limit_changes needs requests_per_minute: what is allowed before the first")
        if any(later[0] <= earlier[0] for earlier, later in pairwise(self.limit_changes)):
            raise ValueError("limit_changes: each must come after the one before it")
        if self.queue and self.max_concurrency is None:
            raise ValueError("queue needs max_concurrency: without it nothing waits")
        return self


class SimulatorConfig(_Table):
    """The whole provider. The same ``seed`` and order of requests give the same run."""

    models: dict[str, SimulatedModel] = Field(min_length=1, description="By the name that requests use.")
    seed: int = Field(default=0, description="Seeds latencies, lengths, faults and answers.")
    api_key: SecretStr | None = Field(
        default=None,
        description="The key to demand; of signed requests ID:SECRET. Left out: none is asked for.",
    )

    @classmethod
    def from_toml(cls, path: Path) -> SimulatorConfig:
        """Read ``path``; a relative ``answers_file`` is taken from that file's folder.

        Raises ``ConfigurationError`` for a file that cannot be read, an unknown key or a wrong value.
        """
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(
                "simulator config", str(path), str(error), "Give a readable TOML file."
            ) from error
        _anchor_answer_files(document, path.parent)
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise _explained(error) from error


def _anchor_answer_files(document: dict[str, Any], folder: Path) -> None:
    models = document.get("models")
    for table in models.values() if isinstance(models, dict) else ():
        if isinstance(table, dict) and isinstance(table.get("answers_file"), str):
            table["answers_file"] = str(folder / table["answers_file"])


def _explained(error: ValidationError) -> ConfigurationError:
    first = error.errors(include_url=False)[0]
    place = [str(part) for part in first["loc"]]
    field = ".".join(place) or "simulator config"
    remedy = ""
    if first["type"] == "extra_forbidden":
        owner = Faults if "faults" in place[:-1] else SimulatedModel if len(place) > 1 else SimulatorConfig
        near = difflib.get_close_matches(place[-1], owner.model_fields, n=1)
        remedy = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(owner.model_fields)}."
    value = "…" if "api_key" in place else first.get("input")
    return ConfigurationError(field, value, str(first["msg"]), remedy)
