"""Finds connections that cannot serve a run: those without a key, and models that one does not offer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from fairlane.client.arguments import is_constant, model_field
from fairlane.client.deployment import Deployment
from fairlane.config.problems import did_you_mean
from fairlane.core.errors import SubmissionError
from fairlane.core.version import __version__
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import RunSpec
from fairlane.store.connection.connect import if_allowed
from fairlane.store.read.lane_directory import LaneDirectory
from fairlane.store.write.workers import WorkerInfo

LISTED = 8


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
