"""Explains why a lane or a run waits, from lanes, queues, leases, delays and budgets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fairlane.core.clock import span, until
from fairlane.core.errors import LaneNotFound
from fairlane.model.run import Plan, RunRef, RunState
from fairlane.model.run_status import RunStatus
from fairlane.store.connection.connect import RedisClient, if_allowed
from fairlane.store.keys import Keys
from fairlane.store.read.job_waits import Delay, Flight, RunTraces, delays_of
from fairlane.store.write.budgets import ALL_LANES, Allowance, Budgets
from fairlane.store.write.lanes.lane_view import LaneView
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leases import UNTAKEN_MS
from fairlane.store.write.runs.inbox import OVERDUE_MS, Outbox
from fairlane.why.queues import RunQueue
from fairlane.why.reasons import LEADERLESS, Reason, held_in_words
from fairlane.why.run_bounds import UNTIMED, RunBounds
from fairlane.why.surroundings import Surroundings
from fairlane.why.waiting import Constraint, Eta, HeldTeam, LaneWait, Waiting, no_earlier

ENDS: Mapping[RunState, Constraint] = {
    RunState.COMPLETED: "done",
    RunState.CANCELLED: "cancelled",
    RunState.TIMED_OUT: "timed_out",
    RunState.STOPPED: "stopped",
    RunState.REFUSED: "run_refused",
}

_FED_SOON = "its next items are about to be fed"


def explain_lane(
    redis: RedisClient, keys: Keys, lane: str, now_ms: str | int = "", team: str | None = None
) -> Waiting:
    """Why the jobs of a lane wait, those of all teams. Raises `LaneNotFound`."""
    known = Lanes(redis, keys).names()
    if lane not in known:
        raise LaneNotFound(lane, known)
    here = Surroundings(redis, keys, [lane], {}, now_ms, team)
    view, queued = here.views[lane], here.depth(lane)
    held = held_teams(redis, keys, lane, here.queues[lane], here.now_ms)
    retries = if_allowed(lambda: [each.due_ms for each in delays_of(redis, keys) if each.lane == lane], [])
    due = sorted(retries)
    reason = here.reason(lane, queued or len(due)) or _not_paused(here.queues[lane]) or all_held(held, queued)
    reason = reason or _in_turn(view, queued)
    if reason is None and due and not queued:
        reason = _tried_again(due, here.now_ms, _late(view))
    reason = reason or _unheld(view, queued, view.in_flight)
    going = [queue for queue in here.queues[lane] if not queue.paused]
    largest = max(going, key=lambda queue: queue.queued, default=None)
    eta = here.eta(lane, queued, here.cost(lane, largest.ref)) if largest else Eta(here.now_ms)
    eta = no_earlier(eta, due[-1]) if due else eta
    first_ms = due[0] if due else None
    wait = LaneWait(lane, *reason, queued, view.in_flight, len(due), first_ms, eta=eta)
    return Waiting(lane, "lane", view.state, *reason, None, None, eta, (wait,), here.now_ms, held_teams=held)


def explain_run(
    redis: RedisClient, keys: Keys, status: RunStatus, weights: Mapping[str, float], now_ms: str | int = ""
) -> Waiting:
    """Why the jobs of a run wait, lane by lane. Announces a request again that is unread for `OVERDUE_MS`."""
    ref, traces = RunRef(status.team, status.run), RunTraces(redis, keys, RunRef(status.team, status.run))
    here = Surroundings(redis, keys, [part.lane for part in status.lanes], weights, now_ms, ref.team, ref)
    flights = list(traces.flights())
    in_flight = Counter(flight.lane for flight in flights)
    if not traces.sees_all() and len(status.lanes) == 1:
        in_flight[status.lanes[0].lane] = status.in_flight
    delays = list(traces.delays())
    plan = traces.plan()
    bounds = RunBounds(traces, plan, status.items, here.now_ms, here.awaited(plan))
    unfed = bounds.unfed
    waits, open_lanes = list[LaneWait](), () if status.state.finished else status.lanes
    for part, stretch in zip(open_lanes, _spread(status, plan, unfed), strict=False):
        lane, known = part.lane, part.known - part.done
        wait = _lane_of_run(here, ref, bounds, lane, known, in_flight[lane], delays, stretch)
        waits.append(_untaken(wait, flights, here.now_ms))
    parts = tuple(_after_tasks(wait, waits) for wait in waits)
    reason, eta = _whole(status, here, parts, bounds)
    if status.state is RunState.SUBMITTED:
        if status.reason is not None:
            reason, eta = Reason("admission", status.reason), Eta(None, True)
        elif here.now_ms - status.submitted_ms >= OVERDUE_MS:
            Outbox(redis, keys).announce(ref.team)
    ahead = max((part.ahead for part in parts if part.ahead is not None), default=None)
    return Waiting(status.run, "run", status.state, *reason, None, ahead, eta, parts, here.now_ms)


def _lane_of_run(
    here: Surroundings,
    ref: RunRef,
    bounds: RunBounds,
    lane: str,
    known: int,
    in_flight: int,
    delays: Sequence[Delay],
    unfed: int,
) -> LaneWait:
    """``known``: unfinished jobs of the run on the lane, without the ``unfed`` items."""
    queued = next((queue.queued for queue in here.queues[lane] if queue.ref == ref), 0)
    due = sorted(delay.due_ms for delay in delays if delay.lane == lane)
    not_ready = max(0, known - queued - in_flight - len(due))
    waits = queued + len(due) + not_ready + unfed
    held = (bounds.paused() or here.too_old(bounds.spec_version, lane)) if waits else None
    reason = held or here.reason(lane, queued or len(due), ref.team, bounds.reason(lane))
    ahead, eta = None, Eta(here.now_ms)
    if waits:
        ahead = here.ahead(ref, lane, waits - 1)
        eta = here.eta(lane, ahead + 1, here.cost(lane, ref), bounds.concurrency)
        eta = no_earlier(eta, max([bounds.earliest_ms(lane, waits, tasks=unfed > 0), *due[-1:]]))
        eta = Eta(None, True) if held else eta._replace(at_least=eta.at_least or not_ready > 0)
    if reason is None and not queued:
        reason = _before_the_lane(here.now_ms, due, bounds, unfed, not_ready, in_flight)
        if reason is not None and due and (old := here.old_workers(bounds.spec_version, lane)):
            reason = reason._replace(sentence=f"{reason.sentence}; {old}")
    if reason is not None and (queued or due):
        jobs = [delay.job for delay in delays if delay.lane == lane]
        reason = reason._replace(sentence=reason.sentence + bounds.outage_end(here.views[lane], jobs))
    if waits and reason is not None and reason.constraint in UNTIMED:
        eta = eta._replace(at_least=True)
    return LaneWait(
        lane,
        *(reason or _unheld(here.views[lane], queued, in_flight)),
        queued=queued,
        in_flight=in_flight,
        delayed=len(due),
        next_due_ms=due[0] if due else None,
        not_ready=not_ready,
        unfed=unfed,
        share=here.share(ref.team, lane) if waits else 1.0,
        ahead=ahead,
        eta=eta,
    )


def _untaken(part: LaneWait, flights: Sequence[Flight], now_ms: int) -> LaneWait:
    """Explains a lane on which only calls wait that no worker has taken."""
    handed = [each.granted_ms for each in flights if each.lane == part.lane and each.worker is None]
    late = [granted_ms for granted_ms in handed if now_ms - granted_ms >= UNTAKEN_MS]
    if not late or part.constraint != "running":
        return part
    words = (
        f"{len(late):,} calls were sent to workers {span(now_ms - min(late))} ago, and none has taken them"
    )
    return replace(part, sentence=f"{words}: see `fairlane doctor`")


def _after_tasks(part: LaneWait, parts: Sequence[LaneWait]) -> LaneWait:
    """Evaluations without an output start after the last task, on whatever lane."""
    if not part.not_ready:
        return part
    ends = [each.eta.at_ms for each in parts if each.waits]
    known = [at_ms for at_ms in ends if at_ms is not None]
    return replace(part, eta=Eta(max(known) if len(known) == len(ends) else None, at_least=True))


def _before_the_lane(
    now_ms: int, due: Sequence[int], bounds: RunBounds, unfed: int, not_ready: int, in_flight: int
) -> Reason | None:
    if due:
        return _tried_again(due, now_ms)
    if unfed or (not_ready and bounds.given and bounds.unfed):
        return bounds.feeding() or Reason("feeding", _FED_SOON)
    if not_ready and not in_flight:
        return Reason("task", "its evaluations wait for the outputs that they score")
    return None


def _tried_again(due: Sequence[int], now_ms: int, late: str = "") -> Reason:
    words = f"{len(due):,} to be tried again, the first {until(due[0], now_ms)}"
    return Reason("delayed", words + late, due[0])


def _late(view: LaneView) -> str:
    """How many calls a deadline has ended, to be added to a sentence."""
    return f"; {view.late}" if view.late else ""


def _not_paused(queues: Sequence[RunQueue]) -> Reason | None:
    """The reason of a lane whose queued jobs are all of paused runs."""
    queued = sum(queue.queued for queue in queues)
    if not queued or not all(queue.paused for queue in queues):
        return None
    return Reason("run_paused", f"the {queued:,} jobs queued here are of runs that are paused")


def _in_turn(view: LaneView, queued: int) -> Reason | None:
    """The reason of a lane whose jobs wait for other models than its server holds."""
    if not queued or view.models is None or view.models.until_ms is None:
        return None
    words = held_in_words(view.lane, view.models, view.now_ms)
    return Reason("model", f"jobs wait for other models: {words}", _future(view.models.until_ms, view.now_ms))


def _future(at_ms: int, now_ms: int) -> int | None:
    return at_ms if at_ms > now_ms else None


def _unheld(view: LaneView, queued: int, in_flight: int) -> Reason:
    if queued:
        return Reason("nothing", "nothing limits it: the next job starts in a moment")
    if in_flight:
        return Reason("running", f"nothing waits: {in_flight:,} calls are in flight{_late(view)}")
    return Reason("nothing", "nothing waits")


def _whole(
    status: RunStatus, here: Surroundings, parts: Sequence[LaneWait], bounds: RunBounds
) -> tuple[Reason, Eta]:
    """What limits the run as a whole: the lane whose last job starts last."""
    if status.state.finished:
        return ended(status), Eta()
    if here.refusing is not None:
        return here.refusing, Eta(None, True)
    if not here.led:
        return LEADERLESS, Eta(None, True)
    if status.state is RunState.SUBMITTED:
        return _unread(max(0, here.now_ms - status.submitted_ms)), Eta()
    if held := bounds.paused() or here.old_scheduler(bounds.spec_version):
        return held, Eta(None, True)
    waiting = [part for part in parts if part.waits] or [part for part in parts if part.in_flight]
    if not waiting:
        if own := bounds.feeding():
            return own, Eta(None, True)
        if bounds.unfed:
            return Reason("feeding", _FED_SOON), Eta()
        return Reason("nothing", "its last jobs are being recorded"), Eta()
    last = max(waiting, key=lambda part: float("inf") if part.eta.at_ms is None else part.eta.at_ms)
    at_least = last.eta.at_least or any(part.eta.at_least for part in waiting)
    return Reason(last.constraint, last.sentence, last.until_ms), Eta(last.eta.at_ms, at_least)


def _unread(waited_ms: int) -> Reason:
    """Why a run is not admitted while a scheduler leads."""
    words = "the run waits to be admitted, as a rule for less than a second"
    if waited_ms >= OVERDUE_MS:
        words = f"{words}: no scheduler has acted on its request for {span(waited_ms)}"
    return Reason("admission", words)


def ended(status: RunStatus) -> Reason:
    """How a finished run ended."""
    words = str(status.state).replace("_", " ")
    because = f": {status.reason}" if status.reason else ""
    verb = "was" if status.state is RunState.REFUSED else "is"
    return Reason(ENDS[status.state], f"the run {verb} {words}{because}")


def _spread(status: RunStatus, plan: Plan | None, unfed: int) -> list[int]:
    """Unfed items, split over lanes like the fed ones: rows not read yet may name other models."""
    judged = plan.known_jobs(status.items) if plan else {}
    tasks = [max(0, part.known - judged.get(f"known:{part.lane}", 0)) for part in status.lanes]
    return [round(unfed * count / sum(tasks)) if count else 0 for count in tasks]


def held_teams(
    redis: RedisClient, keys: Keys, lane: str, queues: Sequence[RunQueue], now_ms: int
) -> tuple[HeldTeam, ...]:
    """Teams whose next job would exceed a budget of the present period, by name."""
    queued = Counter[str]()
    for queue in queues:
        if not queue.paused:
            queued[queue.ref.team] += queue.queued
    teams = sorted(team for team, count in queued.items() if count)
    budgets: list[Allowance] = if_allowed(lambda: Budgets(redis, keys).of(teams, now_ms), [])
    last: dict[str, Allowance] = {}
    for each in budgets:
        if each.held and each.lane in (ALL_LANES, lane):
            before = last.get(each.team)
            last[each.team] = max(before or each, each, key=lambda found: found.period.end_ms)
    return tuple(
        HeldTeam(team, queued[team], f"{each.name} is used up until {each.end_in_words}", each.period.end_ms)
        for team, each in last.items()
    )


def all_held(held: Sequence[HeldTeam], queued: int) -> Reason | None:
    """The reason of a lane on which every team with jobs waits for a budget."""
    if not held or sum(team.queued for team in held) < queued:
        return None
    first = min(held, key=lambda team: team.until_ms)
    sentence = (
        f"team {first.team}: {first.sentence}" if len(held) == 1 else "budgets of its teams are used up"
    )
    return Reason("team_budget", sentence, first.until_ms)
