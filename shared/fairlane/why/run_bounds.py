"""Explains which of its own bounds, or of its team's budgets, delays a run, as `lib/run/bounds.lua` and
`lib/team/budget.lua` count them.
"""

from collections.abc import Sequence

from fairlane.core.clock import span, until
from fairlane.core.figures import dollars, figure
from fairlane.model.ending import beyond_budget
from fairlane.model.run import Plan
from fairlane.model.tokens import Entry
from fairlane.store.read.job_waits import NextJob, RunTraces
from fairlane.store.rejections import ENOUGH_REFUSALS, FirstCalls, awaited_in, rejections_in
from fairlane.store.write.budgets import ALL_LANES, Allowance, amount_in_words
from fairlane.store.write.lanes.lane_view import LaneView
from fairlane.store.write.runs.runs import PACE_SLACK_MS
from fairlane.why.reasons import Reason, held_in_words, outage_end

UNTIMED = frozenset(
    (
        "run_paused",
        "request_refused",
        "model",
        "max_concurrent",
        "cap",
        "ahead",
        "budget",
        "team_budget",
        "team_share",
        "serial",
        "rows",
    )
)
"""Bounds that no clock ends."""


class RunBounds:
    """One admitted run's bounds at ``now_ms``. A run that is not admitted has none."""

    def __init__(
        self, traces: RunTraces, plan: Plan | None, items: int, now_ms: int, awaited: str = ""
    ) -> None:
        """``awaited``: the connection that its next items wait for, in words."""
        self._awaited = awaited
        self._traces, self._plan, self._items, self._now_ms = traces, plan, items, now_ms
        self._fields = traces.state()
        self._state = self._fields.texts
        self._held = set(self._state.get("held_lanes", "").split("\n"))
        self._heads: dict[str, NextJob | None] = {}
        self._budgets: list[Allowance] | None = None

    @property
    def spec_version(self) -> int:
        """The version of the run's spec; 0 where its plan is not known."""
        return 0 if self._plan is None else self._plan.spec.version

    @property
    def unfed(self) -> int:
        """Unfed items."""
        return max(0, self._items - int(self._number("handed")))

    @property
    def given(self) -> bool:
        """Whether outputs are there from the start: its items are its evaluations alone."""
        return self._plan is not None and not self._plan.spec.calls_tasks

    @property
    def concurrency(self) -> int | None:
        """Calls that the run may have in flight; ``None``: any number."""
        most = self._state.get("max_concurrent")
        alone = self._plan is not None and self._plan.spec.one_at_a_time
        return 1 if alone or self._is_serial() else None if most is None else int(most)

    def before(self, item: int) -> int | None:
        """Unfed items before this one; ``None`` where it was fed."""
        if self._plan is not None and self._plan.spec.order.turns:
            return self._traces.unfed_before(item)
        cursor = int(self._number("cursor"))
        if cursor < self._items or not self._turns:
            if item >= cursor:
                return item - cursor
            return self._items - cursor + item if self._turns else None
        rest = cursor - self._items
        return item - rest if item >= rest else None

    def outage_end(self, view: LaneView, jobs: Sequence[int], who: str = "its jobs fail") -> str:
        """Until when these jobs wait for a lane that answers nobody; empty where it answers."""
        return outage_end(self._plan, self._fields, view, self._traces.unanswered_ms(jobs, view.lane), who)

    def earliest_ms(self, lane: str, jobs: int, *, tasks: bool) -> int:
        """Server milliseconds before which the run's own pace starts no ``jobs``-th job from now on a lane.

        ``tasks``: unfed items are expected there.
        """
        times = [self._now_ms, self._start_ms]
        role = self._role(lane, tasks=tasks)
        if role is not None and (gap := self._number(f"{role}_gap_ms")):
            first = max(self._now_ms, self._number(f"{role}_next_ms") - PACE_SLACK_MS)
            times.append(round(first + (jobs - 1) * gap))
        if (over := self.reason(lane)) is not None and over.constraint == "team_budget":
            times.append(over.until_ms or 0)
        if delay := self._number("delay_ms"):
            first = max(self._now_ms, self._number(f"next_ms:{lane}"))
            times.append(round(first + (jobs - 1) * delay))
        return max(times)

    def reason(self, lane: str) -> Reason | None:
        """The bound of the run, or the budget of its team, that delays its next job on a lane."""
        head = self._head(lane)
        if head is None:
            return None
        own = self._own(lane, head) if "bounded" in self._state else None
        return (
            self.paused()
            or self._refused(lane, head)
            or self._shut_out(lane, head)
            or own
            or self._model(lane, head)
            or self._first_calls(lane, head)
            or self._team_budget(lane, head.entry)
            or self._team_share(lane)
        )

    def paused(self) -> Reason | None:
        """The run's pause: since when, and who asked for it."""
        if "paused_ms" not in self._state:
            return None
        by = f" by {self._state['paused_by']}" if self._state.get("paused_by") else ""
        since = span(max(0, self._now_ms - int(self._number("paused_ms"))))
        run = self._traces.run
        return Reason("run_paused", f"the run was paused{by} {since} ago; `fairlane resume {run}` resumes it")

    def _refused(self, lane: str, head: NextJob) -> Reason | None:
        """That the provider rejected the run's first calls of the next job's kind alike, and its words."""
        for each in rejections_in(self._state):
            if (each.lane, each.kind) == (lane, head.entry.kind):
                sentence = f"{lane} rejected the run's first calls alike: {each.words}"
                if self._plan is not None and self._plan.spec.bounds.on_refusal == "hold":
                    sentence += f"; `fairlane resume {self._traces.run}` tries again"
                return Reason("request_refused", sentence)
        return None

    def _model(self, lane: str, head: NextJob) -> Reason | None:
        """That the lane's server holds other models than that of the next job."""
        wanted, models = self._state.get(f"model:{head.entry.kind}"), self._traces.models(lane)
        if wanted is None or models is None or models.until_ms is None or wanted in models.in_flight:
            return None
        return Reason(
            "model", f"the next job waits for {wanted}: {held_in_words(lane, models, self._now_ms)}"
        )

    def _first_calls(self, lane: str, head: NextJob) -> Reason | None:
        """That the model has answered none of the run's calls yet, so that few start for a moment."""
        first = FirstCalls.read(self._state, lane, head.entry.kind)
        if first is None:
            return None
        sentence = f"{lane} has answered none of the run's first {first.started:,} calls yet"
        if awaited := awaited_in(self._state, lane, head.entry.kind):
            sentence += f" and rejected {ENOUGH_REFUSALS} alike"
            return Reason("first_calls", f"{sentence}: more start if one of the other {awaited} is answered")
        if first.started < first.most or self._now_ms >= first.until_ms:
            return None
        return Reason("first_calls", f"{sentence}: more start with an answer, or in a moment", first.until_ms)

    def _shut_out(self, lane: str, head: NextJob) -> Reason | None:
        """That the lane answers other teams and none of this team's calls, so that few of them start."""
        unanswered = f"answered:{head.entry.kind}:{lane}" not in self._state
        if self._traces.shut_out(lane):
            end = "and none of"
        elif unanswered and self._traces.refused_alone(lane):
            end = "and meets 429s with"
        else:
            return None
        sentence = f"{lane} answers other teams, {end} team {self._traces.team}'s calls"
        return Reason("circuit", f"{sentence}: they start one at a time until one is answered")

    def _own(self, lane: str, head: NextJob) -> Reason | None:
        return (
            self._cap()
            or self._max_concurrent()
            or self._ahead(lane, head)
            or self._pace(head)
            or self._delay(lane)
            or self._budget(head.entry)
        )

    def feeding(self) -> Reason | None:
        """Why items are not fed: they wait for a connection or another item, or their rows are missing."""
        if self.unfed and self._awaited:
            return Reason("feeding", self._awaited)
        waits = self.unfed and self._number("handed") > self._number("items_done")
        if waits and self._plan is not None and self._plan.spec.order.turns:
            more = f"{self.unfed:,} more wait for the turns before theirs, or for room in their lanes"
            return Reason("serial", f"the turns of a conversation run one at a time: {more}")
        if waits and self._is_serial():
            now = max(0, int(self._number("cursor")) - 1)
            more = f"{self.unfed:,} more wait for item {now:,}"
            return Reason("serial", f"its items run one at a time: {more}")
        if not self.unfed and self._state.get("open") == "1":
            return Reason("rows", "its rows are still being written")
        return None

    @property
    def _turns(self) -> bool:
        """Whether marked items run first, so that the feeder passes over all items twice."""
        return self._plan is not None and self._plan.spec.order.serial_field is not None

    def _is_serial(self) -> bool:
        if self._plan is None or "serial" not in self._state:
            return False
        order = self._plan.spec.order
        if order.turns:
            return False
        return order.serial or int(self._number("cursor")) < self._items

    def _cap(self) -> Reason | None:
        cap, in_flight = self._state.get("cap"), self._traces.leases() if "cap" in self._state else 0
        if cap is None or in_flight < int(cap):
            return None
        sentence = f"the deployment has {in_flight:,} calls in flight of {int(cap):,}"
        return Reason("cap", f"{sentence}: its scheduler.max_concurrent when the run was admitted")

    def _max_concurrent(self) -> Reason | None:
        most, in_flight = self._state.get("max_concurrent"), int(self._number("in_flight"))
        if most is None or in_flight < int(most):
            return None
        return Reason(
            "max_concurrent", f"the run has {in_flight:,} calls in flight of {int(most):,}, its own bound"
        )

    def _ahead(self, lane: str, head: NextJob) -> Reason | None:
        """Without a configured number only a held lane shows it: the scheduler chooses the number."""
        if self._plan is None or not (head.fresh and self._is_task(head.entry.job)):
            return None
        spec, waiting = self._plan.spec, int(self._number("tasks_in_flight") + self._number("pending"))
        stated = spec.bounds.ahead
        if stated is None:
            held = lane in self._held and waiting > 0 and bool(spec.evals) and self._spent(head.entry) is None
        else:
            held = 0 < stated <= waiting
        if not held:
            return None
        most = "" if stated is None else f" of {stated:,}"
        return Reason(
            "ahead",
            f"its tasks wait for its evaluations: {waiting:,} items{most} have begun and are not evaluated",
        )

    @property
    def _start_ms(self) -> int:
        """The moment before which the run starts nothing; 0 if it has none."""
        return 0 if self._plan is None else self._plan.spec.bounds.start_ms or 0

    def _pace(self, head: NextJob) -> Reason | None:
        role = "task" if self._is_task(head.entry.job) else "eval"
        start_ms = self._start_ms
        if self._now_ms < start_ms:
            return Reason("delay", f"the run is to start {until(start_ms, self._now_ms)}", start_ms)
        gap, next_ms = self._number(f"{role}_gap_ms"), self._number(f"{role}_next_ms")
        if not gap or self._now_ms >= next_ms:
            return None
        what = "tasks" if role == "task" else "evaluations"
        at_ms = max(self._now_ms, round(next_ms) - PACE_SLACK_MS)
        sentence = f"the run's own rate: {figure(1000 / gap, 3)} {what} a second"
        return Reason("task_rate" if role == "task" else "eval_rate", sentence, at_ms)

    def _delay(self, lane: str) -> Reason | None:
        delay, next_ms = self._number("delay_ms"), round(self._number(f"next_ms:{lane}"))
        if not delay or self._now_ms >= next_ms:
            return None
        sentence = f"the run's calls on {lane} start at least {span(round(delay))} apart"
        return Reason("delay", f"{sentence}; the next {until(next_ms, self._now_ms)}", next_ms)

    def _budget(self, entry: Entry) -> Reason | None:
        spent = self._spent(entry)
        if spent is None:
            return None
        return Reason("budget", spent)

    def _spent(self, entry: Entry) -> str | None:
        """How much is gone of a budget that the next call would exceed, by its estimate, and the call's."""
        for budget, used, wanted in (
            ("budget_tokens", self._number("tokens"), float(entry.tokens.most)),
            ("budget_cost", self._number("cost"), self._cost(entry)),
        ):
            if (most := self._number(budget)) and used + wanted > most:
                tokens = budget == "budget_tokens"
                gone = f"{used:,.0f}" if tokens else dollars(used / 1e6)
                whole = f"{most:,.0f} tokens" if tokens else dollars(most / 1e6)
                next_call = f"the next call may exceed it: {beyond_budget(budget, wanted, most - used)}"
                return f"{gone} of the run's budget of {whole} are used or reserved, and {next_call}"
        return None

    def _team_budget(self, lane: str, entry: Entry) -> Reason | None:
        """Of several used-up budgets the one that ends last.

        A budget with too little left counts if the scheduler has delayed a job for it.
        """
        wanted = {"requests": 1, "tokens": entry.tokens.most, "usd": self._cost(entry) / 1e6}
        if self._budgets is None:
            self._budgets = self._traces.budgets(self._now_ms)
        over = [
            each
            for each in self._budgets
            if each.lane in (ALL_LANES, lane)
            and (each.used >= each.most or (each.held and each.used + wanted[each.unit] > each.most))
        ]
        if not over:
            return None
        last = max(over, key=lambda each: each.period.end_ms)
        return Reason("team_budget", _used_up(last, wanted[last.unit]), last.period.end_ms)

    def _team_share(self, lane: str) -> Reason | None:
        held = self._traces.held_share(lane)
        if held is None or (held.until_ms is not None and held.until_ms <= self._now_ms):
            return None
        team, most = self._traces.team, f"{held.most:.3g} %"
        return Reason(
            "team_share", f"team {team} has {most} of {lane}, the most that it may take", held.until_ms
        )

    def _cost(self, entry: Entry) -> float:
        """In millionths of a dollar."""
        prices = [float(each) for each in self._state.get(f"price:{entry.kind}", "0 0").split()]
        return (entry.tokens.most - entry.tokens.output) * prices[0] + entry.tokens.output * prices[1]

    def _role(self, lane: str, *, tasks: bool) -> str | None:
        head = self._head(lane)
        if head is None:
            return "task" if tasks else None
        return "task" if self._is_task(head.entry.job) else "eval"

    def _head(self, lane: str) -> NextJob | None:
        if lane not in self._heads:
            self._heads[lane] = self._traces.head(lane)
        return self._heads[lane]

    def _is_task(self, job: int) -> bool:
        steps, first = int(self._number("steps")) or 1, self._state.get("first_session_job")
        return job % steps == 0 and (first is None or job < int(first))

    def _number(self, field: str) -> float:
        return float(self._state.get(field) or 0)


def _used_up(budget: Allowance, wanted: float) -> str:
    if wanted > budget.most:
        return (
            f"the next call may use {amount_in_words(budget.unit, wanted)}, more than the whole {budget.name}"
        )
    sentence = f"{budget.name} is used up until {budget.end_in_words}"
    if budget.used >= budget.most:
        return sentence
    used = amount_in_words(budget.unit, budget.used)
    return f"{sentence}: {used} are used or reserved, and the next call may exceed it"
