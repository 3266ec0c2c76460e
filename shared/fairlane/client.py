"""The client: submits runs, finds them again, lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeAlias, Unpack

from pydantic import ValidationError

from fairlane.admission.waiting import Waiting
from fairlane.archive.opening import open_archive
from fairlane.calls import Arguments, CallHandle, CallMap, CallOptions, submit_call, submit_calls
from fairlane.clock import Clock, SystemClock
from fairlane.configuration import load_settings
from fairlane.configuration.environment import process_environment
from fairlane.datasets import pages, read_rows
from fairlane.datasets.references import Reference
from fairlane.errors import ConfigurationError, RunNotFound, SubmissionError
from fairlane.estimate import Forecast, estimate, take_sample
from fairlane.evaluation_environment import evaluation_defaults
from fairlane.evaluators.spec import EvaluatorSpec
from fairlane.handle import Run
from fairlane.handover import announce, hand_over, new_id
from fairlane.link import Link
from fairlane.polling import SystemWaiter, Waiter
from fairlane.resuming import Origins, require_over, resumed_spec
from fairlane.run import RunSpec, RunStatus
from fairlane.settings import Settings
from fairlane.store.connect import RedisClient, open_store, require, without_password
from fairlane.store.keys import Keys, RunRef
from fairlane.streaming import RowWriter
from fairlane.submission import (
    SubmitOptions,
    build_spec,
    check_connections,
)
from fairlane.tracing import submitting

_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

Dataset: TypeAlias = str | PathLike[str] | Iterable[Mapping[str, Any]]


class Client:
    """One team's way to a deployment. Keeps no state of its own and may be shared by threads.

    Use it as a context manager, or call `close`; a run goes on either way.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        team: str | None = None,
        settings: Settings | None = None,
        redis: RedisClient | None = None,
        clock: Clock | None = None,
        waiter: Waiter | None = None,
    ) -> None:
        """``url`` and ``team`` win over ``settings``, which are read from file and environment if not given.

        ``redis`` (an open client, left open), ``clock`` and ``waiter`` are for tests.
        Raises `ConfigurationError`, or `StoreUnavailable` if nothing answers.
        """
        evaluation_defaults(process_environment())  # what is wrong there is told at once
        chosen = _settings(url, team, settings)
        shown = without_password(chosen.redis.url)
        self.team = chosen.team
        self._owns_redis = redis is None
        self._link = Link(
            redis=require(redis or open_store(chosen.redis), chosen.redis.url),
            keys=Keys(chosen.redis.deployment),
            url=shown,
            clock=clock or SystemClock(),
            waiter=waiter or SystemWaiter(),
            weights={name: team.weight for name, team in chosen.teams.items()},
            archive=open_archive(chosen),
            prices=chosen.prices,
            connections=chosen.connections,
        )

    def submit(
        self, dataset: Dataset | Reference, prompt: str | None = None, **options: Unpack[SubmitOptions]
    ) -> Run:
        """Submit a run and return as soon as its rows are written; the scheduler takes it from there.

        The items are ``dataset`` × prompts × models × ``repetitions``, numbered in that order. ``dataset`` is
        a ``.jsonl``, ``.json`` or ``.csv`` file, or any iterable of dicts, read by the page; or a `Reference`
        to what the scheduler reads itself. `SubmitOptions`
        lists the options.

        Raises `SubmissionError` that names the argument, the row if one is at fault, and the remedy; or
        `StoreUnavailable`. Nothing of the run is left behind then, nor after an interrupt.
        """
        with self._link.answering(), submitting() as mark:
            spec = mark(self._spec(prompt, **options))
            if isinstance(dataset, Reference):
                return announce(self._link, spec.model_copy(update={"source": dataset.source})).run
            return hand_over(self._link, spec, pages(read_rows(dataset), spec.page_rows))

    def open(self, prompt: str | None = None, **options: Unpack[SubmitOptions]) -> RowWriter:
        """Submit a run whose rows follow: it begins with the first of them, and at most a few thousand wait
        in
        Redis to be handed out. `RowWriter.write` adds rows, ``close`` ends them. Raises what `submit` raises.
        """
        with self._link.answering(), submitting() as mark:
            return announce(self._link, mark(self._spec(prompt, **options)))

    def resume(
        self,
        run_id: str,
        dataset: Dataset | None = None,
        *,
        evaluators: Sequence[EvaluatorSpec] | None = None,
        retry_errors: bool = True,
    ) -> Run:
        """Go on from a run that is over: a new run that does what it did not do, and takes over the rest.

        Items are known by their row's content, prompt, model and repetition, so ``dataset`` may have grown or
        been reordered since; left out, it is the run's own. Evaluators may be others: what has been scored
        by an equal one is not scored again. ``retry_errors``: do failed jobs again. The old run stays as it
        is.

        Raises `RunNotFound`, `SubmissionError` where the run is not over, and what `submit` raises.
        """
        with self._link.answering(), submitting() as mark:
            old = self.run(run_id)
            status, spec = old.status(), self._link.runs.overview(RunRef(self.team, run_id)).spec
            require_over(status)
            if spec is None or self._link.runs.is_archived(RunRef(self.team, run_id)):
                raise SubmissionError("run", run_id, "has left Redis for the archive", "Submit it anew.")
            submitted_ms = self._link.runs.now_ms()
            new = mark(
                resumed_spec(spec, new_id(submitted_ms), submitted_ms, evaluators, retry_errors=retry_errors)
            )
            rows = self._link.records(spec).rows(status.items // spec.cells_per_row)
            if dataset is None:
                return hand_over(self._link, new, pages(rows, new.page_rows), Origins())
            origins = Origins(rows)
            taken = pages(read_rows(dataset), new.page_rows)
            return hand_over(self._link, new, taken, origins)

    def estimate(
        self,
        dataset: Dataset,
        prompt: str | None = None,
        *,
        rows: int | None = None,
        answer_tokens: int | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Forecast:
        """What a run would take: calls, tokens, cost and time, from a sample of its rows and what its lanes
        have learned. Takes what `submit` takes and writes nothing. Raises what `submit` raises.

        ``rows``: how many there are, so that only the first few are read. ``answer_tokens``: how long an
        answer is expected to be; left out, as long as the parameters allow.
        """
        with self._link.answering():
            spec = self._spec(prompt, **options)
            sample = take_sample(read_rows(dataset), rows, spec.session_field)
            return estimate(self._link, spec, sample, answer_tokens=answer_tokens)

    def call(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> CallHandle:
        """Call a function or a Celery task on a worker once its lane allows; see `CallOptions`."""
        return submit_call(self, name, args, kwargs, **options)

    def map(self, name: str, calls: Sequence[Arguments], **options: Unpack[CallOptions]) -> CallMap:
        """`call` for each ``(args, kwargs)``, as one run."""
        return submit_calls(self, name, calls, **options)

    def run(self, run_id: str) -> Run:
        """The run of that id, submitted by whichever process of the team. Raises `RunNotFound`."""
        if not _RUN_ID.fullmatch(run_id):
            raise RunNotFound(run_id)
        ref = RunRef(self.team, run_id)
        with self._link.answering():
            return Run(self._link, ref, self._link.runs.overview(ref).spec)

    def runs(self, limit: int = 50) -> list[RunStatus]:
        """The team's latest runs, ``limit`` at most, newest first. Expired ones are not listed."""
        if limit < 1:
            return []
        with self._link.answering():
            return self._link.runs.recent(self.team, limit)

    def why(self, target: str) -> Waiting:
        """Why a lane, one of the team's runs, or a job of it waits, and when it starts, at about.

        ``target`` is a lane's name, a run's id, or a job: ``"RUN/ITEM"`` (its first step that is not over) or
        ``"RUN/ITEM/STEP"``, where step 0 is the task and step k the k-th judge, or its name. One look, which
        costs as much as there are active runs. Raises `TargetNotFound` with names that look like it.
        """
        with self._link.answering():
            return self._link.asker(self.team).why(target)

    def close(self) -> None:
        """Close the connections to Redis and to the archive. Runs go on."""
        if self._link.archive is not None:
            self._link.archive.close()
        if self._owns_redis:
            self._link.redis.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _spec(self, prompt: str | None, **options: Unpack[SubmitOptions]) -> RunSpec:
        """The spec of a run that is submitted now."""
        submitted_ms = self._link.runs.now_ms()
        filled = evaluation_defaults(process_environment()).fill_in(options)
        spec = build_spec(
            run=new_id(submitted_ms), team=self.team, submitted_ms=submitted_ms, prompt=prompt, **filled
        )
        connections = self._link.runs.connections()
        if connections is not None:
            check_connections(spec, connections)
        return spec


def _settings(url: str | None, team: str | None, settings: Settings | None) -> Settings:
    if settings is None:
        return load_settings(redis={"url": url}, team=team)
    given = settings.model_dump()
    if url is not None:
        given["redis"]["url"] = url
    if team is not None:
        given["team"] = team
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in detail["loc"])
        raise ConfigurationError(field, detail["input"], detail["msg"]) from None
