"""The client: submits runs, finds them again, lists them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeAlias, Unpack

from pydantic import ValidationError
from redis.exceptions import RedisError

from fairlane.admission.waiting import Waiting
from fairlane.archive.opening import open_archive
from fairlane.clock import Clock, SystemClock
from fairlane.configuration import load_settings
from fairlane.datasets import Numbering, pages, read_rows
from fairlane.errors import ConfigurationError, RunNotFound
from fairlane.handle import Run
from fairlane.link import Link
from fairlane.polling import SystemWaiter, Waiter
from fairlane.run import RunSpec, RunStatus
from fairlane.settings import Settings
from fairlane.store.connect import RedisClient, open_redis, require, without_password
from fairlane.store.keys import Keys, RunRef
from fairlane.submission import SubmitOptions, bounded_pages, build_spec, check_connections

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: in ASCII order, none looks like another
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
        chosen = _settings(url, team, settings)
        shown = without_password(chosen.redis.url)
        self.team = chosen.team
        self._owns_redis = redis is None
        self._link = Link(
            redis=require(redis or open_redis(chosen.redis.url), chosen.redis.url),
            keys=Keys(chosen.redis.deployment),
            url=shown,
            clock=clock or SystemClock(),
            waiter=waiter or SystemWaiter(),
            weights={name: team.weight for name, team in chosen.teams.items()},
            archive=open_archive(chosen),
            prices=chosen.prices,
            connections=chosen.connections,
        )

    def submit(self, dataset: Dataset, prompt: str | None = None, **options: Unpack[SubmitOptions]) -> Run:
        """Submit a run and return as soon as its rows are written; the scheduler takes it from there.

        The items are ``dataset`` × prompts × models × ``repetitions``, numbered in that order. ``dataset`` is a
        ``.jsonl``, ``.json`` or ``.csv`` file, or any iterable of dicts; read by the page. `SubmitOptions`
        lists the options.

        Raises `SubmissionError` that names the argument, the row if one is at fault, and the remedy; or
        `StoreUnavailable`. Nothing of the run is left behind then, nor after an interrupt.
        """
        with self._link.answering():
            spec = self._spec(prompt, **options)
            return self._hand_over(spec, pages(read_rows(dataset), spec.page_rows))

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
        spec = build_spec(
            run=_new_id(submitted_ms), team=self.team, submitted_ms=submitted_ms, prompt=prompt, **options
        )
        connections = self._link.runs.connections()
        if connections is not None:
            check_connections(spec, connections)
        return spec

    def _hand_over(self, spec: RunSpec, rows: Iterable[list[dict[str, Any]]]) -> Run:
        outbox, ref = self._link.outbox, RunRef(spec.team, spec.run)
        numbering, taken = Numbering(spec.session_field), bounded_pages(rows, spec)
        count = outbox.upload(ref, numbering.watch(taken))
        outbox.note(ref, numbering.fields(spec.page_rows))
        whole = spec.model_copy(update={"rows": count, "sessions": numbering.sessions})
        try:
            outbox.submit(whole)
        except BaseException:
            # The request may have arrived although its answer did not: then there is something to cancel.
            with suppress(RedisError):
                outbox.discard(ref)
                outbox.cancel(ref)
            raise
        return Run(self._link, ref, whole)


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


def _new_id(now_ms: int) -> str:
    """Fourteen characters: the time in milliseconds, so that ids sort by it, and 25 random bits."""
    number = (now_ms << 25) | secrets.randbits(25)
    return "".join(_DIGITS[(number >> shift) & 31] for shift in range(65, -1, -5))
