"""The client: submits runs, finds them again, lists them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, Self, TypeAlias, Unpack, cast

from pydantic import ValidationError

from fairlane.client.apps import load_app
from fairlane.client.archive import open_archive
from fairlane.client.calls import Arguments, CallHandle, CallMap, CallOptions, submit_call, submit_calls
from fairlane.client.deployment import Deployment, SystemWaiter, Waiter
from fairlane.client.handles import Unsent, run_id_of
from fairlane.client.outputs import Run
from fairlane.client.submitting.arguments import require_work, split_scorers, take_evaluators
from fairlane.client.submitting.continuation import Origins, continued_spec, require_finished, rows_of
from fairlane.client.submitting.options import Evaluator, SubmitOptions
from fairlane.client.submitting.parameters import check_params
from fairlane.client.submitting.row_writer import RowWriter, announce
from fairlane.client.submitting.submission import build_spec, new_id, submitting, upload_and_submit
from fairlane.client.submitting.trial import (
    Offers,
    check_connections,
    check_reference,
    check_rows,
    checked_rows,
)
from fairlane.client.views.forecast import Forecast
from fairlane.client.views.lanes import LaneList, read_lanes
from fairlane.config.environment import process_environment
from fairlane.config.evaluation_environment import NAMES, evaluation_defaults
from fairlane.config.loader import load_settings
from fairlane.config.settings import Settings
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.errors import ConfigurationError, RunNotFound, SubmissionError
from fairlane.core.section import first_flaw
from fairlane.datasets.references import Reference
from fairlane.datasets.row_json import FIELD
from fairlane.datasets.rows import Paging, read_rows
from fairlane.datasets.tables import Table
from fairlane.evaluators.client_side import ClientScorer, check_client_scorers
from fairlane.model.run import RunRef, RunSpec, RunState
from fairlane.model.run_status import RunStatus
from fairlane.store.connection.connect import RedisClient, open_store, require, require_schema
from fairlane.why.waiting import Waiting

_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

NAMES_SEARCHED = 1000
"""The newest runs, whose names `Client.run` searches."""

Dataset: TypeAlias = str | PathLike[str] | Iterable[Any] | Table


class Client(Unsent):
    """One team's access to a deployment. It keeps no state, and threads may share it.

    Use it as a context manager, or call `close`; runs go on.
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
        checkpoint: Callable[[], None] | None = None,
    ) -> None:
        """``url`` and ``team`` take precedence over ``settings``, by default those of file and environment.

        ``redis`` (an open client, left open), ``clock`` and ``waiter`` are for tests. ``checkpoint`` is
        called between the requests of long work, and may raise to abandon it: `AsyncClient` gives one.
        Raises `ConfigurationError`, or `StoreUnavailable` if nothing answers.
        """
        _checked_environment()
        chosen = _settings(url, team, settings)
        self._bounded = chosen.defaults.profile == "evaluation"
        self._environ = _checked_environment(bounded=self._bounded)
        self.team = chosen.team
        archive = open_archive(chosen)
        deployment = Deployment(
            chosen,
            require(redis or open_store(chosen.redis), chosen.redis.url),
            clock or SystemClock(),
            waiter or SystemWaiter(),
            archive,
        )
        self._deployment = replace(deployment, checkpoint=checkpoint) if checkpoint else deployment
        require_schema(self._deployment.redis, chosen.redis)
        opened = (archive, self._deployment.redis if redis is None else None)
        self._closings = [each.close for each in opened if each is not None]

    @classmethod
    def over(cls, deployment: Deployment) -> Self:
        """A client for the settings' team over an open deployment, which `close` leaves open."""
        client = cls.__new__(cls)
        client._bounded = deployment.settings.defaults.profile == "evaluation"
        client._environ = _checked_environment(bounded=client._bounded)
        client.team, client._deployment, client._closings = deployment.settings.team, deployment, []
        return client

    def submit(
        self,
        dataset: Dataset | Reference,
        prompt: str | None = None,
        *,
        check: bool = True,
        **options: Unpack[SubmitOptions],
    ) -> Run:
        """Submit a run and return as soon as its rows are in Redis.

        The items are ``dataset`` × prompts × models × ``repetitions``, numbered in that order. ``dataset`` is
        a ``.jsonl``, ``.json``, ``.csv``, ``.tsv`` or ``.parquet`` file, a DataFrame or Arrow table, or any
        iterable of dicts, data classes or pydantic models. The client reads it page by page. Or it is a
        `Reference` to a file that the scheduler reads itself. `SubmitOptions` lists the options.

        ``check``: try templates and evaluators on the first hundred rows, and look at parameters, models and
        keys, before anything is written. Without it such mistakes show as invalid or failed items. Rows of a
        `Reference` are tried if its file is on this machine, too.

        Raises `SubmissionError` that names the argument, the row if one is at fault, and the remedy;
        `StoreUnavailable`; or `InboxFull`, after which the same call may succeed later. Neither an error nor
        an interrupt leaves parts of the run behind.
        """
        with self._deployment.answering(), submitting() as mark:
            spec, mine = self._split(prompt, options)
            spec = mark(spec)
            offers = self._checked_offers(spec) if check else None
            if isinstance(dataset, Reference):
                if offers is not None:
                    check_reference(spec, dataset.source, self._deployment.settings, offers.check_rendered)
                run = announce(self._deployment, spec.model_copy(update={"source": dataset.source})).run
            else:
                rows = read_rows(dataset)
                if offers is not None:
                    rows = checked_rows(spec, rows, self._deployment.settings, dataset, offers.check_rendered)
                run = upload_and_submit(self._deployment, spec, self._pages(rows, spec))
            return run.with_scorers(*mine) if mine else run

    def open(
        self, prompt: str | None = None, *, check: bool = True, **options: Unpack[SubmitOptions]
    ) -> RowWriter:
        """Submit a run whose rows follow: it starts with the first of them. `RowWriter.write` adds rows,
        ``close`` ends them; at most a few thousand wait in Redis. Raises what `submit` raises.

        ``check`` is that of `submit`: the first hundred rows are tried before one of them is sent.
        """
        with self._deployment.answering(), submitting() as mark:
            spec, mine = self._split(prompt, options)
            offers = self._checked_offers(spec) if check else None
            first = None
            if offers is not None:
                settings = self._deployment.settings
                first = partial(check_rows, spec, settings=settings, more=offers.check_rendered)
            writer = announce(self._deployment, mark(spec), first)
            writer.run = writer.run.with_scorers(*mine) if mine else writer.run
            return writer

    def continue_run(
        self,
        run_id: str | Run,
        dataset: Dataset | None = None,
        *,
        evaluators: Sequence[Evaluator] | None = None,
        retry_errors: bool = True,
        check: bool = True,
    ) -> Run:
        """Continue a finished run: start a new run that takes over its results and does what is missing.

        An item is the same if row content, prompt, model and repetition are equal. So ``dataset`` may have
        grown or been reordered; by default it is the run's own. With other ``evaluators``, scores of equal
        ones are kept. ``retry_errors``: repeat failed jobs. The old run stays as it is. ``check`` is that of
        `submit`, for what is new: rows, evaluators, and the models of what is called again.

        Raises `RunNotFound`, `ResultsLost` where Redis has lost its results, `SubmissionError` for an
        unfinished run, and what `submit` raises.
        """
        with self._deployment.answering(), submitting() as mark:
            old, runs = self.run(run_id), self._deployment.runs
            ref = RunRef(self.team, old.id)
            status, spec = old.status(), runs.overview(ref).spec
            require_finished(status)
            if spec is None or runs.is_archived(ref):
                raise SubmissionError("run", old.id, "has left Redis for the archive", "Submit it anew.")
            runs.require_results(ref)
            submitted_ms = runs.now_ms()
            sent, mine = split_scorers(evaluators)
            taken = spec.evaluators if sent is None else take_evaluators(sent)
            check_client_scorers(mine, taken)
            new = mark(
                continued_spec(spec, new_id(submitted_ms), submitted_ms, taken, retry_errors=retry_errors)
            )
            before = rows_of(self._deployment, spec, status.items // spec.cells_per_row)
            if dataset is None:
                rows, origins = before, Origins()
            else:
                rows, origins = read_rows(dataset), Origins(before, new.order)
            if check:
                unfinished = status.state is not RunState.COMPLETED or (retry_errors and status.failed > 0)
                calls = dataset is not None or unfinished
                scores = evaluators is not None and status.items > 0
                offers = self._checked_offers(new, tasks=calls)
                if dataset is not None or scores:
                    more = offers.check_rendered if calls else lambda models: None
                    rows = checked_rows(new, rows, self._deployment.settings, dataset, more)
            run = upload_and_submit(self._deployment, new, self._pages(rows, new), origins)
            return run.with_scorers(*mine) if mine else run

    def estimate(
        self,
        dataset: Dataset,
        prompt: str | None = None,
        *,
        rows: int | None = None,
        answer_tokens: int | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Forecast:
        """Estimate a run's calls, tokens, cost and time from a sample of its rows and its lanes' state.

        Takes what `submit` takes and writes nothing. Raises what `submit` raises, and `SubmissionError` for
        an iterator: a later `submit` would run only the rows that the sample has left.

        ``rows``: their number, so that only the first few are read. ``answer_tokens``: expected length of an
        answer, by default the longest that the parameters allow.
        """
        if isinstance(dataset, Iterator):
            problem = "can be read only once, and a submit after the estimate would lack what it has read"
            raise SubmissionError(
                FIELD, f"a {type(dataset).__name__}", problem, "Give list(…), or a file's path."
            )
        with self._deployment.answering():
            spec, _ = self._split(prompt, options)
            forecast: Forecast = load_app("estimate")(
                self._deployment, spec, read_rows(dataset), count=rows, answer_tokens=answer_tokens
            )
            return forecast

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

    def run(self, run_id: str | Run) -> Run:
        """The run of that id, name or handle, submitted by whichever process of the team.

        Of several runs with one name it is the newest. Raises `RunNotFound`.
        """
        wanted = run_id_of(run_id)
        with self._deployment.answering():
            try:
                return self._run(wanted)
            except RunNotFound:
                named = (each.run for each in self.runs(NAMES_SEARCHED) if wanted and each.name == wanted)
                return self._run(next(named, wanted))

    def _run(self, run_id: str) -> Run:
        if not _RUN_ID.fullmatch(run_id):
            raise RunNotFound(run_id)
        ref = RunRef(self.team, run_id)
        return Run(self._deployment, ref, self._deployment.runs.overview(ref).spec)

    def runs(self, limit: int = 50) -> list[RunStatus]:
        """The team's latest runs, ``limit`` at most, newest first. Expired ones are not listed."""
        if limit < 1:
            return []
        with self._deployment.answering():
            return self._deployment.runs.recent(self.team, limit)

    def connections(self) -> frozenset[str]:
        """Names of the connections that the deployment's scheduler has; empty if no scheduler ever led."""
        with self._deployment.answering():
            return self._deployment.known_connections() or frozenset()

    def lanes(self, *names: str) -> LaneList:
        """The lanes of these names, by default all that were configured or used, as they stand now.

        Raises `LaneNotFound` for a name that is none.
        """
        with self._deployment.answering():
            return read_lanes(self._deployment, names)

    def why(self, target: str | Run) -> Waiting:
        """Explain what a lane, a run of the team or a job waits for, and about when it starts.

        ``target`` is a lane's name, a run's id or handle, or a job: ``"RUN/ITEM"`` (its first unfinished
        step) or ``"RUN/ITEM/STEP"``. Step 0 is the task, step k the k-th judge, also by its name. The cost
        grows with the number of active runs. Raises `TargetNotFound` with names that look like it.
        """
        with self._deployment.answering():
            return self._deployment.explainer(self.team).why(run_id_of(target))

    def close(self) -> None:
        """Close the connections to Redis and to the archive. Runs continue."""
        for close in self._closings:
            close()

    def __repr__(self) -> str:
        return f"<Client of team {self.team} at {self._deployment.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _split(self, prompt: str | None, options: SubmitOptions) -> tuple[RunSpec, tuple[ClientScorer, ...]]:
        """The spec of a run that is submitted now, and the scorers that run in this process."""
        sent, mine = split_scorers(options.get("evaluators", ()))
        if mine:
            require_work(sent, mine, options)
            options = {**options, "evaluators": cast("Sequence[Evaluator]", sent)}
        submitted_ms = self._deployment.runs.now_ms()
        filled = self._filled_in(options)
        spec = build_spec(new_id(submitted_ms), self.team, submitted_ms, prompt=prompt, **filled)
        connections = self._deployment.known_connections()
        if connections is not None:
            check_connections(spec, connections)
        if mine:
            check_client_scorers(mine, spec.evaluators)
        return spec, mine

    def _pages(self, rows: Iterator[dict[str, Any]], spec: RunSpec) -> Paging:
        return Paging(rows, spec.page_rows, self._deployment.settings.scheduler.limits.row_bytes)

    def _checked_offers(self, spec: RunSpec, *, tasks: bool = True) -> Offers:
        if spec.params or spec.evaluators:
            check_params(spec)
        offers = Offers(self._deployment)
        offers.check(spec, tasks=tasks)
        return offers

    def _filled_in(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options of a submission, completed by the environment's current defaults."""
        if self._bounded or any(self._environ.get(name) for name in NAMES):
            return evaluation_defaults(self._environ, bounded=self._bounded).fill_in(options)
        return options


def _checked_environment(*, bounded: bool = False) -> Mapping[str, str]:
    """The environment, which may change between submissions. Reports a wrong value before the first one."""
    environ = process_environment()
    evaluation_defaults(environ, bounded=bounded)
    return environ


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
        raise ConfigurationError(*first_flaw(error)) from None
