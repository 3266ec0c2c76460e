"""What a deployment offers a submission now: the models that they list, and workers with their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from fairlane.client.deployment import Deployment
from fairlane.client.submitting.arguments import is_constant, model_field
from fairlane.client.submitting.parameters import check_protocol
from fairlane.config.connections.connection import WITHOUT_EMBEDDINGS
from fairlane.config.problems import did_you_mean
from fairlane.core.errors import SubmissionError
from fairlane.core.version import __version__
from fairlane.model.evaluators import Agent, Judge, Similarity
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import RunSpec
from fairlane.store.connection.connect import if_allowed
from fairlane.store.read.reading import LaneDirectory
from fairlane.store.write.workers import WorkerInfo
from fairlane.why.surroundings import lacking

LISTED = 8
"""Models that an error names."""


def check_connections(spec: RunSpec, known: Iterable[str]) -> None:
    """Refuse a model or judge whose connection is not among ``known``. Raises `SubmissionError`."""
    names = sorted(known)
    for field, model in _named_models(spec):
        connection = model.partition(":")[0].strip()
        if not is_constant(connection) or connection in (FUNCTIONS, *names):
            continue
        listed = f"known connections: {', '.join(names)}" if names else "none is configured"
        remedy = did_you_mean(connection, names) or listed
        raise SubmissionError(
            field, model, f"there is no connection {connection!r}", remedy[0].upper() + remedy[1:]
        )


def _named_models(spec: RunSpec, *, tasks: bool = True) -> list[tuple[str, str]]:
    """The models of ``tasks`` and evaluators, each behind the argument that names it."""
    models = spec.models if tasks else ()
    named = [(model_field(spec.models, number), model) for number, model in enumerate(models)]
    for step in (*spec.evals, *spec.session_evals):
        named.append((f"evaluators[{step.evaluator.name!r}].model", step.model))
    return named


def _asked(spec: RunSpec, *, tasks: bool) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The parameters of tasks and evaluators, each with their argument and a model that gets them."""
    for model in spec.models if tasks else ():
        yield "params", spec.params, model
    for each in spec.evaluators:
        if isinstance(each, Judge | Agent):
            yield f"evaluators[{each.name!r}].params", each.params, each.model


class Offers:
    """What a deployment's connections offer now: the models that they list, and whether workers have keys."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._directory: LaneDirectory = deployment.directory()
        self._workers: Sequence[WorkerInfo] | None = None

    def check(self, spec: RunSpec, *, tasks: bool = True) -> None:
        """Check the models of ``tasks`` and evaluators that are no templates. Raises `SubmissionError`."""
        for field, model in _named_models(spec, tasks=tasks):
            if is_constant(model):
                self._check(field, model)
        for field, params, model in _asked(spec, tasks=tasks):
            if params and is_constant(model):
                protocol = self._directory.protocol_of(model.partition(":")[0].strip())
                check_protocol(field, params, protocol or "")
        for each in spec.evaluators:
            if isinstance(each, Similarity):
                self._check_embeddings(each)

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
            lack = lacking(connection, self._workers or ())
            if lack is not None:
                raise SubmissionError(field, model, f"no worker serves it: {lack.problem}", f"{lack.remedy}.")
            stated = self._deployment.settings.connections.get(connection)
            place = stated.needed_key if stated else None
            unknown = (
                "Set the variable that its api_key_env names where workers start, and start them anew, "
                "or let their user read the file of its api_key_file"
            )
            remedy = f"{place.remedy if place else unknown}; `fairlane doctor` shows keys."
            raise SubmissionError(field, model, f"no worker has the key of {connection!r}", remedy)

    def _check_embeddings(self, evaluator: Similarity) -> None:
        protocol = self._directory.protocol_of(evaluator.model.partition(":")[0].strip())
        if protocol in WITHOUT_EMBEDDINGS:
            raise SubmissionError(
                f"evaluators[{evaluator.name!r}].model",
                evaluator.model,
                f"connections of protocol {protocol!r} make no embeddings",
                "Name one of protocol openai, openai_responses, azure_openai, gemini or ollama.",
            )

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
