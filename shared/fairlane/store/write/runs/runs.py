"""The scheduler's verbs on runs: admit with their bounds and prices, refuse, feed, extend, promote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlane.core.errors import ConfigurationError
from fairlane.model.ending import RecordedJob, SessionCompletion
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import Plan, RunRef, RunSpec
from fairlane.model.tokens import Entry, Price, price_of
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.verbs import script
from fairlane.store.write.attempts import bound, follow_json, named_keys
from fairlane.store.write.audit import UNNAMED, Act, Auditor
from fairlane.store.write.runs.run_control import RunControl

Fields = dict[str, int | float | str]

PACE_SLACK_MS = 100
"""Milliseconds of late starts that later starts may catch up on, as in ``lib/run/bounds.lua``."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """A job that waits out its back-off."""

    member: str
    ref: RunRef
    entry: str
    lane: str

    @classmethod
    def parse(cls, member: str) -> Delayed:
        """Parse a member of the index of delayed jobs."""
        ref, entry, lane = member.split("|", 2)
        return cls(member, RunRef.parse(ref), entry, lane)


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A compressed page of rows that the scheduler has read by reference. Its digest outlives its content."""

    number: int
    content: bytes
    digest: str


class Turn(NamedTuple):
    """An item to feed, and the one ``before`` it in its conversation; -1 if that ended long ago, or there
    is none.
    """

    item: int
    before: int


class Runs(RunControl):
    """Changes runs in Redis, for the leader.

    Every verb but `promote` is fenced by the leader's epoch; `promote` moves a job once, whoever calls it.
    """

    def __init__(self, redis: RedisClient, keys: Keys, ttl_ms: int, auditor: Auditor = UNNAMED) -> None:
        super().__init__(redis, keys, auditor)
        self._ttl_ms = ttl_ms

    def admit(
        self,
        plan: Plan,
        epoch: int,
        now_ms: str | int = "",
        *,
        bounds: Fields | None = None,
    ) -> int:
        """Admit a run. 1: running; 2: completed, as it had no items; 0: already admitted, or not the leader.

        ``bounds``: see `bounds_of`.
        """
        spec = plan.spec
        ref = RunRef(spec.team, spec.run)
        fields: Fields = {
            "rows": spec.rows,
            "items": spec.items,
            "jobs": spec.jobs,
            "steps": spec.steps,
            "submitted_ms": spec.submitted_ms,
            **plan.known_jobs(spec.items),
            **_models(spec),
            **(bounds or {}),
        }
        if spec.session_evals:
            fields["first_session_job"] = spec.items * spec.steps
            fields["session_jobs"] = spec.session_jobs
        if spec.open:
            fields["open"] = 1
        call = bound(
            "run_admit",
            named_keys(self.keys, ref),
            now_ms=now_ms,
            epoch=epoch,
            plan=plan.model_dump_json(),
            counts=json.dumps(fields),
            ttl_ms=self._ttl_ms,
            audit=self._submitted(plan),
        )
        return int(call.run(self.redis))

    def refuse(self, ref: RunRef, reason: str, submitted_ms: int, epoch: int, now_ms: str | int = "") -> bool:
        """Reject a submitted run for this reason; false if it was admitted or this is not the leader."""
        call = bound(
            "run_refuse",
            named_keys(self.keys, ref),
            now_ms=now_ms,
            epoch=epoch,
            reason=reason,
            submitted_ms=submitted_ms,
            ttl_ms=self._ttl_ms,
            audit=self._auditor.of_team(Act.REFUSED, ref.team, ref.run, reason=reason),
        )
        return bool(call.run(self.redis) == 1)

    def forget_refused(self, ref: RunRef, epoch: int, now_ms: str | int = "") -> bool:
        """Delete a rejected run before it expires; false if it was not rejected."""
        call = bound("run_forget", named_keys(self.keys, ref), now_ms=now_ms, epoch=epoch, run=ref.run)
        return bool(call.run(self.redis) == 1)

    def feed(
        self,
        ref: RunRef,
        epoch: int,
        start: int,
        upto: int,
        entries: Mapping[str, Sequence[Entry]],
        over: Sequence[RecordedJob],
        now_ms: str | int = "",
        *,
        handed: int | None = None,
        joined: Mapping[int, SessionCompletion] | None = None,
        memory: Mapping[str, str] | None = None,
        turns: Sequence[Turn] = (),
    ) -> int:
        """Queue ``entries`` (by lane), record ``over``. 1: fed, 2: fed and the run has ended, 0: stale.

        ``handed``: how many items it feeds; without it, as many as it scans. ``joined``: the sessions of
        items that may end with it. ``memory``: values that later items read. ``turns``: the items,
        where conversations go side by side; ``start`` and ``upto`` then count items.
        """
        lanes = list(entries)
        sessions = joined or {}
        queues = [self.keys.fresh(ref, lane) for lane in lanes]
        queues += [self.keys.hot(ref, lane) for each in list(sessions.values())[:1] for lane in each.lanes]
        call = bound(
            "run_feed",
            named_keys(self.keys, ref, queues=queues),
            now_ms=now_ms,
            epoch=epoch,
            **{"from": start},
            upto=upto,
            lanes=json.dumps(lanes),
            entries=json.dumps([[str(entry) for entry in entries[lane]] for lane in lanes]),
            over=follow_json(over),
            memory=json.dumps(dict(memory or {})),
            handed=upto - start if handed is None else handed,
            joined=json.dumps([[item, each.to_list()] for item, each in sessions.items()]),
            turns=json.dumps(turns),
        )
        return int(call.run(self.redis))

    def refind(self, ref: RunRef, lanes: Sequence[str], epoch: int, now_ms: str | int = "") -> int | None:
        """Rebuild the bitmap of fed items of a run whose conversations go side by side. Returns how many are
        fed.

        ``None``: Redis has lost none of it. ``lanes``: all that may have its jobs.
        """
        queues = [queue(ref, lane) for lane in lanes for queue in (self.keys.hot, self.keys.fresh)]
        call = bound("run_refind", named_keys(self.keys, ref, queues=queues), now_ms=now_ms, epoch=epoch)
        fed: int | None = call.run(self.redis)
        return fed

    def extend(
        self,
        ref: RunRef,
        plan: Plan,
        rows: int,
        epoch: int,
        now_ms: str | int = "",
        *,
        last: bool,
        page: ReadPage | None = None,
    ) -> int:
        """Extend an open run to ``rows`` rows. 1: extended, 2: it has ended with that, 0: stale, or nothing
        new.

        ``last``: no more rows will come. ``page``: the new rows, if the scheduler reads them; it is stored
        and counted in one script.
        """
        spec = plan.spec.model_copy(update={"rows": rows, "open": False})
        whole = Plan.model_validate(plan.model_dump() | {"spec": spec.model_dump()})
        call = bound(
            "run_extend",
            named_keys(self.keys, ref),
            now_ms=now_ms,
            epoch=epoch,
            rows=rows,
            items=spec.items,
            jobs=spec.jobs,
            known=json.dumps(plan.known_jobs(1)),
            plan=whole.model_dump_json() if last else "",
            page="" if page is None else page.number,
            content=b"" if page is None else page.content,
            digest="" if page is None else page.digest,
        )
        return int(call.run(self.redis))

    def delayed(self, upto_ms: int, limit: int = 500) -> list[Delayed]:
        """Jobs whose back-off ends by ``upto_ms``, soonest first."""
        due = self.redis.zrangebyscore(self.keys.delayed, "-inf", upto_ms, start=0, num=limit)
        return [Delayed.parse(member.decode()) for member in due]

    def postpone(self, job: Delayed, until_ms: int) -> None:
        """Delay a waiting job until ``until_ms`` (server time)."""
        self.redis.zadd(self.keys.delayed, {job.member: until_ms}, xx=True)

    def promote(self, job: Delayed, now_ms: str | int = "") -> bool:
        """Queue a job whose back-off has ended."""
        call = script("job_promote").bind(
            {
                "clock": self.keys.clock,
                "delayed": self.keys.delayed,
                "state": self.keys.state(job.ref),
                "hot": self.keys.hot(job.ref, job.lane),
                "dirty": self.keys.dirty,
            },
            {
                "now_ms": now_ms,
                "member": job.member,
                "entry": job.entry,
                "lane": job.lane,
                "ref": str(job.ref),
                "channel": self.keys.wake,
            },
        )
        return bool(call.run(self.redis) == 1)

    def drop_page(self, ref: RunRef, number: int) -> None:
        """Delete a page of rows that can be read again from its dataset."""
        self.redis.hdel(self.keys.rows(ref), str(number))

    def _submitted(self, plan: Plan) -> str:
        spec = plan.spec
        if spec.continues is None:
            return self._auditor.of_team(Act.SUBMITTED, spec.team, spec.run, jobs=spec.jobs)
        return self._auditor.of_team(
            Act.CONTINUED, spec.team, spec.run, jobs=spec.jobs, continues=spec.continues.run
        )


def bounds_of(plan: Plan, prices: Mapping[str, Price], max_concurrent: int | None) -> Fields:
    """A run's own bounds as fields of its state, which ``lib/run/bounds.lua`` enforces.

    ``max_concurrent`` is the deployment's bound; the run keeps it even if the configuration changes. Rates
    are stored as milliseconds between starts. ``bounded`` is set if there is any bound. Prices serve the
    budgets of the run and of its team.
    """
    spec, bounds = plan.spec, plan.spec.bounds
    task_rate, eval_rate = spec.role_rates
    fields: Fields = dict(_prices(spec, prices))
    if spec.order.waits_for_items:
        fields["serial"] = 1
    limits: Fields = {
        name: value
        for name, value in {
            "max_concurrent": bounds.max_concurrent,
            "cap": max_concurrent,
            "task_gap_ms": _gap_ms(task_rate),
            "eval_gap_ms": _gap_ms(eval_rate),
            **_start(bounds.start_ms, {"task_gap_ms": task_rate, "eval_gap_ms": eval_rate}),
            "delay_ms": round(bounds.delay * 1000) or None,
            "budget_tokens": bounds.budget_tokens,
            "budget_cost": None if bounds.budget_usd is None else bounds.budget_usd * 1e6,
        }.items()
        if value is not None
    }
    runs_ahead = bool(spec.evals) and spec.calls_tasks and bounds.ahead != 0
    if not limits and not runs_ahead:
        return fields
    return fields | limits | {"bounded": 1}


def _start(start_ms: int | None, rates: Mapping[str, float | None]) -> Fields:
    """The time before which no task or evaluation starts; a gap of 0 does not pace calls after it."""
    if start_ms is None:
        return {}
    gaps: Fields = {name: 0 for name, rate in rates.items() if rate is None}
    first = start_ms + PACE_SLACK_MS  # paced calls may start that much early
    return gaps | {"task_next_ms": first, "eval_next_ms": first}


def _gap_ms(rate: float | None) -> float | None:
    return None if rate is None else 1000 / rate


def _prices(spec: RunSpec, prices: Mapping[str, Price]) -> Iterator[tuple[str, str]]:
    """Prices by call kind, in millionths of a dollar per token: ``"input output"``."""
    for kind, model in enumerate(_model_templates(spec)):
        price = price_of(model, prices)
        if price is not None:
            yield f"price:{kind}", f"{price.input:.9g} {price.output:.9g}"


def _models(spec: RunSpec) -> Fields:
    """Models by call kind, as their server names them: ``lib/models/fitting.lua``."""
    named = {f"model:{kind}": model.partition(":")[2] for kind, model in enumerate(_model_templates(spec))}
    return {field: model for field, model in named.items() if model}


def _model_templates(spec: RunSpec) -> list[str]:
    """The model, or its template, of each call kind."""
    steps = (*spec.evals, *spec.session_evals)
    return [*(spec.models or ("",)), *(step.model for step in steps)]


def check_prices(spec: RunSpec, prices: Mapping[str, Price]) -> None:
    """Raise `ConfigurationError` if a run has a budget in dollars and calls a model without a price."""
    if spec.bounds.budget_usd is None:
        return
    for model in _model_templates(spec):
        if model and not model.startswith(f"{FUNCTIONS}:") and price_of(model, prices) is None:
            raise ConfigurationError(
                "budget_usd",
                spec.bounds.budget_usd,
                f"{model} has no price, so that its calls cannot be counted",
                f"add [prices.{json.dumps(model)}] to the scheduler's settings, or use budget_tokens",
            )
