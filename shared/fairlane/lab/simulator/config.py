"""Configuration of the simulated provider, from a TOML file or Python: one table per model."""

from __future__ import annotations

import difflib
import math
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from fairlane.config.connections.presets import ProviderName
from fairlane.core.errors import ConfigurationError
from fairlane.core.section import in_words
from fairlane.lab.simulator.vendors import VENDORS
from fairlane.model.choices import MOST_SECONDS

Probability = Annotated[float, Field(ge=0, le=1)]
MOST_PER_MINUTE = 1e9
MOST_MS = 86_400_000
MOST_TOKENS = 10**6
"""The longest answer or prompt that is made, in tokens."""

MOST_COUNT = 10**9
MOST_SEED = 2**63 - 1
At = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
Duration = Annotated[float, Field(gt=0, le=MOST_SECONDS)]
Rate = Annotated[float, Field(gt=0, le=MOST_PER_MINUTE)]
Window = tuple[At, Duration]
"""``(start, duration)`` in seconds."""
Change = tuple[At, Rate]
"""``(at, requests per minute)``, ``at`` in seconds."""
ForeignPeriod = tuple[At, Duration, Annotated[float, Field(gt=0, le=600_000)]]
"""``(start, duration, requests per minute)``, the first two in seconds."""
HeaderStyle = Literal[
    "protocol", "groq", "azure", "together", "mistral", "fireworks", "cerebras", "xai", "ietf"
]
LimitShape = Literal["bucket", "window", "sliding", "second"]
WindowSeconds = Annotated[float, Field(ge=0.001, le=86_400)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Faults(_Table):
    """Probability of each fault for an admitted request, from 0 to 1; a request meets at most one fault."""

    error_500: Probability = 0.0
    """500, before any work."""

    error_502: Probability = 0.0
    """502 with an HTML page, as gateways send it."""

    error_503: Probability = 0.0
    """503, before any work."""

    error_529: Probability = 0.0
    """529 overloaded, before any work."""

    error_in_stream: Probability = 0.0
    """An error event after the first chunk; a 529 if the answer is not streamed."""

    reset: Probability = 0.0
    """The connection is reset before any work."""

    reset_after_work: Probability = 0.0
    """The request is processed and counted, then the connection is reset."""

    hang: Probability = 0.0
    """The server never answers."""

    malformed: Probability = 0.0
    """200 with broken JSON."""

    cut_stream: Probability = 0.0
    """The connection closes in the middle of the answer."""

    error_401: Probability = 0.0
    """401, although the key is right."""

    error_404: Probability = 0.0
    """404 without a body."""

    error_429: Probability = 0.0
    """429 that names nothing, whatever the rate is."""

    @model_validator(mode="after")
    def _at_most_one(self) -> Faults:
        total = math.fsum(probability for _, probability in self)
        if total > 1 + 1e-9:
            raise ValueError(f"the probabilities add up to {total:g}; at most 1 is possible")
        return self


class ModelLimits(_Table):
    """The limits of one simulated model. They start again if one of these settings changes."""

    requests_per_minute: Rate | None = None
    """Default: no limit."""

    tokens_per_minute: Rate | None = None
    """Default: no limit."""

    input_tokens_per_minute: Rate | None = None
    """Default: no limit."""

    output_tokens_per_minute: Rate | None = None
    """Default: no limit."""

    requests_per_day: int | None = Field(default=None, ge=1, le=MOST_COUNT)
    """A day begins when the server starts. Default: no limit."""

    shape: LimitShape = "bucket"
    """How the limits per minute are enforced. "bucket": refilled by the millisecond; "window": fixed windows
    from the start, each with its whole count at once; "sliding": the count in any window; "second": fixed
    windows of a second, each a sixtieth of the minute."""

    token_shape: LimitShape | None = None
    """The same for the token limits. Default: the value of `shape`."""

    window_seconds: WindowSeconds = 60.0
    """Length of a "window" or "sliding" window."""

    token_window_seconds: WindowSeconds | None = None
    """The same for the token limits. Default: the value of `window_seconds`."""

    burst_seconds: float = Field(default=1.0, gt=0, le=3600)
    """Seconds of its rate that a full bucket holds, and at least 1 request."""

    limit_changes: tuple[Change, ...] = ()
    """[at, requests_per_minute]: the limit from that second after the start."""

    foreign: tuple[ForeignPeriod, ...] = ()
    """[start, duration, requests_per_minute], in seconds from the start: evenly spaced requests of other
    users of the same limits."""

    foreign_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)
    """Input tokens of each of those requests."""

    acceleration: float | None = Field(default=None, gt=0, le=MOST_PER_MINUTE)
    """Requests admitted in a minute may be at most this many times those of the minute before, or
    acceleration_floor."""

    acceleration_floor: int = Field(default=60, ge=1, le=MOST_COUNT)
    """Requests per minute that acceleration always allows."""

    shrink_on_overrun: float | None = Field(default=None, gt=0, lt=1)
    """Each second with rejected requests multiplies the limits per minute by this, down to a twentieth. Each
    admitted request restores half of what it uses, until the limits are whole."""

    initial_share: float = Field(default=1.0, ge=0.05, le=1)
    """Share of the limits per minute at the start; admitted requests raise it, as after an overrun."""

    max_concurrency: int | None = Field(default=None, ge=1, le=MOST_COUNT)
    """Requests processed at once. Default: no limit."""

    queue: int = Field(default=0, ge=0, le=MOST_COUNT)
    """Requests beyond max_concurrency that wait; further ones are rejected."""

    remaining_of: Literal["limit", "minute"] = "limit"
    """Of what the headers say how much is left. "minute": of fixed minutes that are counted beside the
    limits, as many proxies do."""


class SimulatedModel(ModelLimits):
    """One simulated model: its limits, latency, answers, headers and faults."""

    provider: ProviderName | None = None
    """A known provider, whose limits, charges and headers apply to every key that you leave out. Default: the
    values below."""

    charge: Literal["actual", "reserved"] = "actual"
    """Tokens that a request costs. "actual": prompt and generated output; "reserved": prompt and
    max_tokens."""

    output_factor: float = Field(default=1.0, gt=0, le=100)
    """What an output token counts in the token limits."""

    concurrency_status: Literal[429, 503] = 429
    """Status of requests rejected by max_concurrency."""

    latency_ms: float = Field(default=200.0, ge=0, le=MOST_MS)
    """Median latency."""

    latency_sigma: float = Field(default=0.0, ge=0, le=3)
    """Spread of the lognormal latency; 0 is constant."""

    keep_alive: bool = False
    """Send blank lines while an answer is being made, or comments if it is streamed."""

    chunks: int = Field(default=4, ge=1, le=1000)
    """Chunks of a streamed answer."""

    first_chunk_share: float = Field(default=0.25, ge=0, le=1)
    """Share of the latency before the first chunk."""

    output_tokens: float = Field(default=32.0, ge=1, le=MOST_TOKENS)
    """Mean length of an answer."""

    output_tokens_stddev: float = Field(default=0.0, ge=0, le=MOST_TOKENS)
    """Standard deviation of that length."""

    max_output_tokens: int = Field(default=4096, ge=1, le=MOST_TOKENS)
    """Longest answer, and the max_tokens of a request without one."""

    output: Literal["text", "echo", "fixed", "answers", "judge", "schema", "tool", "assistant"] = "text"
    """Answers. "text": filler of the drawn length; "echo": the last user message; "fixed": fixed_text;
    "answers": the answer from answers_file; "judge": a verdict; "schema": JSON that follows the requested
    schema, or filler without one; "tool": a call of the first offered tool; "assistant": whatever of these
    the prompt asks for, and the results of calculations and multiple choice."""

    fixed_text: str = Field(default="ok", min_length=1)
    """Answer of output = "fixed"."""

    answers_file: Path | None = None
    """JSONL with question and answer, for "answers" and "assistant"; the final answer follows ####."""

    answer_style: Literal["worked", "plain"] = "worked"
    """"worked": filler that ends with "#### 18"; "plain": "18" alone."""

    schema_omits: tuple[str, ...] = ()
    """Names of list entries that output = "schema" leaves out."""

    schema_breaks: tuple[str, ...] = ()
    """Names of list entries that break the schema: their numbers are words."""

    accuracy: Probability = 1.0
    """Share of questions answered correctly."""

    step_accuracy: Probability | None = None
    """The same where the prompt asks to think step by step; the answer then shows its working. Default: the
    value of `accuracy`."""

    judge_accuracy: Probability = 1.0
    """Share of prompts judged correctly."""

    refusals: Probability = 0.0
    """Share of prompts that the model refuses, in the form of the protocol."""

    reasoning: bool = False
    """Reject what reasoning models reject: sampling parameters other than their defaults, and max_tokens
    where the protocol has max_completion_tokens."""

    rejects: tuple[str, ...] = ()
    """Parameters that the model rejects, by OpenAI's names, in the words of the protocol."""

    headers: Literal["none", "retry_after", "ratelimit", "full"] = "none"
    """Hints. "retry_after": on a 429; "ratelimit": limit, remaining and reset on every answer, as the
    protocol names them, and the numbers in the message of a 429; "full": both."""

    retry_after_form: Literal["default", "milliseconds", "seconds", "fraction", "date"] = "default"
    """Format of Retry-After. "default": openai milliseconds and seconds, anthropic seconds."""

    headers_on: Literal["every", "rejected"] = "every"
    """Answers with limit headers. "rejected": only those that are a 429."""

    reset_header: bool = True
    """Whether limit headers say when a limit renews."""

    header_style: HeaderStyle = "protocol"
    """Names of the headers. "protocol": openai or anthropic, as the request was made; "groq": requests are
    those of the day; "azure": whole seconds, and a 429 by tokens reports 0; "together": limits per second;
    "mistral", "fireworks", "cerebras", "xai": their own names; "ietf": ratelimit-limit and so on, of the
    axis with the least left."""

    success_retry_after_ms: int | None = Field(default=None, ge=0, le=MOST_MS)
    """A Retry-After on every 200, whatever headers says."""

    faults: Faults = Faults()

    burst_429: tuple[Window, ...] = ()
    """[start, duration] in seconds: every request gets a 429."""

    outages: tuple[Window, ...] = ()
    """[start, duration] in seconds: every connection is reset at once."""

    windows_from: Literal["first_request", "start"] = "first_request"
    """Start of the times in burst_429 and outages."""

    status_always: Annotated[int, Field(ge=400, le=599)] | Literal["insufficient_quota"] | None = None
    """Answer everything with this status; "insufficient_quota" is a 429 for a used-up quota."""

    @model_validator(mode="before")
    @classmethod
    def _with_vendor_defaults(cls, given: Any) -> Any:
        name = given.get("provider") if isinstance(given, dict) else None
        return {**VENDORS.get(name, {}), **given} if isinstance(name, str) else given

    @model_validator(mode="after")
    def _check_answers_file(self) -> SimulatedModel:
        if self.output == "answers" and self.answers_file is None:
            raise ValueError('output = "answers" and answers_file go together: set both or neither')
        if self.answers_file is not None and self.output not in ("answers", "assistant"):
            raise ValueError('answers_file is for output = "answers" or "assistant"')
        return self

    @model_validator(mode="after")
    def _limits_are_complete(self) -> SimulatedModel:
        if self.limit_changes and self.requests_per_minute is None:
            raise ValueError("limit_changes needs requests_per_minute: the limit before the first change")
        if any(later[0] <= earlier[0] for earlier, later in pairwise(self.limit_changes)):
            raise ValueError("limit_changes: each must come after the one before it")
        if self.queue and self.max_concurrency is None:
            raise ValueError("queue needs max_concurrency: without it nothing waits")
        return self


class SimulatorConfig(_Table):
    """The simulated provider. The same ``seed`` and order of requests give the same run."""

    models: dict[str, SimulatedModel] = Field(min_length=1)
    """By the name that requests use."""

    seed: int = Field(default=0, ge=-MOST_SEED, le=MOST_SEED)
    """Seeds latencies, lengths, faults and answers."""

    api_key: SecretStr | None = None
    """The API key that requests must carry; for signed requests, ID:SECRET. Default: none."""

    @classmethod
    def from_toml(cls, path: Path) -> SimulatorConfig:
        """Read ``path``; a relative ``answers_file`` is relative to that file's folder.

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
    if (most := first.get("ctx", {}).get("le")) is not None:
        remedy = f"Give {most:,.10g} or less."
    value = "…" if "api_key" in place else first.get("input")
    return ConfigurationError(field, value, in_words(first), remedy)
