"""Finds what no provider takes: models that are not offered, connections without a key, wrong parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from fairlane.client.arguments import is_constant, model_field
from fairlane.client.deployment import Deployment
from fairlane.config.problems import did_you_mean
from fairlane.core.errors import SubmissionError
from fairlane.core.version import __version__
from fairlane.model.evaluators import Agent, Judge, Similarity
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import RunSpec
from fairlane.store.connection.connect import if_allowed
from fairlane.store.read.reading import LaneDirectory
from fairlane.store.write.workers import WorkerInfo

LISTED = 8
"""Models that an error names."""

KNOWN = frozenset(
    {
        *("audio", "background", "best_of", "cache_control", "chat_template_kwargs", "dimensions"),
        *("early_stopping", "encoding_format", "format", "frequency_penalty", "function_call"),
        *("functions", "guided_choice", "guided_grammar", "guided_json", "guided_regex"),
        *("ignore_eos", "include", "input_type", "instructions", "keep_alive", "length_penalty"),
        *("logit_bias", "logprobs", "max_completion_tokens", "max_output_tokens", "max_tokens"),
        *("metadata", "min_p", "min_tokens", "mirostat", "modalities", "n", "num_ctx"),
        *("num_predict", "options", "parallel_tool_calls", "prediction", "presence_penalty"),
        *("previous_response_id", "prompt_cache_key", "random_seed", "reasoning"),
        *("reasoning_effort", "repeat_last_n", "repeat_penalty", "repetition_penalty"),
        *("response_format", "safe_prompt", "safety_identifier", "safety_settings", "seed"),
        *("service_tier", "stop", "stop_sequences", "store", "stream_options", "system"),
        *("temperature", "text", "think", "thinking", "thinking_config", "tool_choice"),
        *("tool_config", "tools", "top_a", "top_k", "top_logprobs", "top_p", "transforms"),
        *("truncation", "user", "verbosity", "web_search_options"),
    }
)
"""Names that at least one provider takes: only what is nearly one of them, and none, is taken for a slip."""

_ALIKE = 0.88
"""`difflib` ratio: one letter more, less or other in eight."""

_COUNTS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
}
"""The widest range that a provider documents (OpenAI's, 2026)."""

_ANYWAY = "check=False (--no-check) sends it as it is."


class Offers:
    """What a deployment's connections offer now: the models that they list, and whether workers have keys."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._directory: LaneDirectory = deployment.directory()
        self._workers: Sequence[WorkerInfo] | None = None

    def check(self, spec: RunSpec, *, tasks: bool = True) -> None:
        """Check the models of ``tasks`` and evaluators that are no templates. Raises `SubmissionError`."""
        models = spec.models if tasks else ()
        named = [(model_field(spec.models, number), model) for number, model in enumerate(models)]
        named += [
            (f"evaluators[{step.evaluator.name!r}].model", step.model)
            for step in (*spec.evals, *spec.session_evals)
        ]
        for field, model in named:
            if is_constant(model):
                self._check(field, model)

    def check_rendered(self, models: Iterable[str]) -> None:
        """Check models that rows name: raises `SubmissionError` if none of them can be called."""
        problems = []
        for model in models:
            try:
                self._check("model", model)
            except SubmissionError as error:
                problems.append(error)
            else:
                return
        if problems:
            raise problems[0]

    def _check(self, field: str, model: str) -> None:
        connection, _, name = (part.strip() for part in model.partition(":"))
        if connection == FUNCTIONS:
            return
        listed = self._directory.models_of(connection)
        if listed and not any(fnmatchcase(name, pattern) for pattern in listed):
            known = ", ".join(listed[:LISTED]) + (", …" if len(listed) > LISTED else "")
            near = did_you_mean(name, listed)
            remedy = f"{near[:1].upper()}{near[1:]} " if near else ""
            raise SubmissionError(
                field,
                model,
                f"connection {connection!r} does not list this model",
                f"{remedy}It lists {known}.",
            )
        if self._directory.needs_key(connection) and self._lack(connection):
            stated = self._deployment.settings.connections.get(connection)
            variable = (stated and stated.key_variable) or "the variable that its api_key_env names"
            remedy = f"Set {variable} where workers start, and start them anew; `fairlane doctor` shows keys."
            raise SubmissionError(field, model, f"no worker has the key of {connection!r}", remedy)

    def _lack(self, connection: str) -> bool:
        """Whether there are workers, and none has the connection's key. Unknown workers may have it."""
        if self._workers is None:
            self._workers = self._alive()
        known = [info for info in self._workers if info.version == __version__]
        return bool(known) and not any(
            info.version != __version__ or connection in info.credentials for info in self._workers
        )

    def _alive(self) -> Sequence[WorkerInfo]:
        beats = if_allowed(self._deployment.beats, None) or ()
        oldest = self._deployment.now_ms() - self._deployment.settings.scheduler.worker_timeout_seconds * 1000
        return [beat.info for beat in beats if beat.beat_ms >= oldest and not beat.info.stopping]


def check_params(spec: RunSpec) -> None:
    """Check the parameters of a run's tasks and evaluators. Raises `SubmissionError`."""
    if spec.models and not all(model.startswith(f"{FUNCTIONS}:") for model in spec.models):
        _check_each("params", spec.params)
    for each in spec.evaluators:
        if isinstance(each, Judge | Agent | Similarity):
            _check_each(f"evaluators[{each.name!r}].params", each.params)


def _check_each(field: str, params: Mapping[str, Any]) -> None:
    for name, value in params.items():
        near = get_close_matches(name.lower(), KNOWN, n=1, cutoff=_ALIKE)
        if name not in KNOWN and near:
            remedy = f"Did you mean {near[0]!r}? {_ANYWAY}"
            raise SubmissionError(f"{field}[{name!r}]", value, "is no parameter of a provider", remedy)
        wanted = _wanted(name, value) if value is not None else None
        if wanted is not None:
            raise SubmissionError(
                f"{field}[{name!r}]",
                value,
                "would be rejected by every provider",
                f"Give {wanted}. {_ANYWAY}",
            )


def _wanted(name: str, value: object) -> str | None:
    """What the parameter takes; ``None`` if the value is that."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in _COUNTS and not (number and value == int(value) and value >= 1):  # type: ignore[operator, call-overload]
        return "a whole number, 1 or more"
    if name in _RANGES:
        low, high = _RANGES[name]
        if not (number and low <= value <= high):  # type: ignore[operator]
            return f"a number from {low:g} to {high:g}"
    return None
