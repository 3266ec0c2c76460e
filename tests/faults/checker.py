"""Pure checks of a history: each returns the violations of one promise, in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.faults.history import COMPLETED, FORGOTTEN_S, LOST, Call, History, Limit, RunSeen

SETTLED_WITHIN_S = 60.0
"""All runs are done so long after the last fault: the rest of the work, a ramp, a lease, a probe."""

TRAVEL_S = 0.1
"""The way from a worker's check to the provider, which decision 0054 leaves out of the bound."""

REPORT_S = 0.5
"""How long after its end a call's report may be lost: with its worker, and in Redis that loses a second."""

ACTED_S = 1.0
"""A call whose permit is older than a pause or a cancellation may still arrive for so long."""

DEFECTS = frozenset({"attempt_failed", "tick_failed", "survey_failed", "slot_not_freed", "traceback"})
ENDINGS = {
    "completed": "succeeded",
    "cancelled": "cancelled",
    "stopped": "skipped",
    "timed_out": "timed_out",
}
"""How the items of a run end that did not succeed, by the state in which the run ends."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: the check that found it, and what it found."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


def check(history: History) -> list[Violation]:
    """Everything that is wrong with a history."""
    return [Violation(name, text) for name, find in CHECKS.items() for text in find(history)]


def records(history: History) -> Iterator[str]:
    """Every run reaches its state, with one record for each item that holds the item's own answer."""
    for run in history.runs:
        if run.may_be_lost and run.state == LOST:
            continue
        if run.error is not None:
            yield f"{run.name}: {run.error}"
        elif run.done_s is not None:
            yield from _run_records(run, forgets=history.forgets)


def _run_records(run: RunSeen, *, forgets: bool) -> Iterator[str]:
    # Redis may have lost the request to cancel a run, too.
    if run.state != run.ending and not (forgets and run.state == "completed"):
        yield f"{run.name} ended as {run.state}, not as {run.ending}"
    if [entry.item for entry in run.records] != list(range(len(run.questions))):
        yield f"{run.name} has records of {_listed([entry.item for entry in run.records])}"
        return
    if run.jobs_done != run.jobs or sum(run.by_state.values()) != run.jobs:
        yield f"{run.name} counts {run.jobs_done} of {run.jobs} jobs, by state {dict(run.by_state)}"
    allowed = {"succeeded", ENDINGS[run.ending]}
    for entry in run.records:
        where = f"{run.name} item {entry.item}"
        if entry.state not in allowed:
            yield f"{where} is {entry.state}: {entry.error}"
        elif entry.state == "succeeded":
            if entry.output != run.questions[entry.item]:
                yield f"{where} has the answer {entry.output!r}"
            if run.ending == "completed" and entry.scores != (1.0,) * run.judges:
                yield f"{where} has the scores {entry.scores}"
        if entry.attempts > run.max_attempts:
            yield f"{where} used {entry.attempts} attempts of {run.max_attempts}"


def attempts(history: History) -> Iterator[str]:
    """No job uses an attempt but its last, unless its provider failed or its worker was lost."""
    if history.costs:
        return
    for run in history.runs:
        many = [entry.item for entry in run.records if entry.attempts > 1]
        if many:
            yield f"{run.name} used more than one attempt for items {_listed(many)}"


def paid_once(history: History) -> Iterator[str]:
    """No call is paid twice, but where the provider broke the answer or a fault cut the call.

    What a continued run did not complete, the run that continues it pays itself.
    """
    repeated = {
        question
        for run in history.runs
        if run.continued
        for question, entry in zip(run.questions, run.records, strict=False)
        if entry.state != "succeeded"
    }
    for (model, question), calls in _by_question(history.calls).items():
        paid = [call for call in calls if call.paid]
        whole = [call for call in paid if call.ending == COMPLETED and not _was_cut(history, call)]
        if len(whole) > 1 + (question in repeated):
            shown = ", ".join(_shown(call) for call in paid)
            yield f"{model} was paid {len(paid)} times for {question!r}: {shown}"


def arrivals(history: History) -> Iterator[str]:
    """In every window, a stated lane's calls arrive within ``rate × t + burst``."""
    for model, limits in history.limits.items():
        calls = sorted((c for c in history.calls if c.model == model), key=lambda call: call.arrived)
        worst = max(windows(calls, limits), default=None)
        if worst is not None and worst[0] > 1e-6:
            excess, first, count, allowed = worst
            begin, end = calls[first].arrived, calls[first + count - 1].arrived
            yield (
                f"{count} calls of {model} arrived from {begin:.2f} to {end:.2f} s, "
                f"{allowed:.1f} are stated ({excess:.1f} too many)"
            )


def windows(calls: Sequence[Call], limits: Sequence[Limit]) -> Iterator[tuple[float, int, int, float]]:
    """Of windows that begin and end with a call: their excess, first call, calls and bound.

    Under one limit, of all windows that end with a call only the worst one: linear in the calls.
    """
    if len(limits) == 1:
        yield from _worst_windows(calls, limits)
        return
    for first, begun in enumerate(calls):
        for last in range(first, len(calls)):
            allowed = stated(limits, begun.since - TRAVEL_S, calls[last].arrived)
            count = last - first + 1
            yield count - allowed, first, count, allowed


def _worst_windows(calls: Sequence[Call], limits: Sequence[Limit]) -> Iterator[tuple[float, int, int, float]]:
    per_second, worst, lead = limits[0].per_second, 0, float("-inf")
    for last, call in enumerate(calls):
        if per_second * call.since - last > lead:
            worst, lead = last, per_second * call.since - last
        allowed = stated(limits, calls[worst].since - TRAVEL_S, call.arrived)
        count = last - worst + 1
        yield count - allowed, worst, count, allowed


def stated(limits: Sequence[Limit], begin: float, end: float) -> float:
    """How many calls limits allow between two moments: the rate's integral, and the greatest burst."""
    total, burst = 0.0, 0.0
    ends = [*(limit.since for limit in limits[1:]), float("inf")]
    for limit, until in zip(limits, ends, strict=True):
        first = begin if limit is limits[0] else max(begin, limit.since)
        if first <= min(end, until):
            total += limit.per_second * (min(end, until) - first)
            burst = max(burst, limit.burst)
    return total + burst


def concurrency(history: History) -> Iterator[str]:
    """A run never has more calls in flight than its bound; a serial run has one.

    A call counts until a fault cuts it, for then its repetition may begin. A call whose answer the provider
    broke counts only when it arrives: nobody but its worker knows when the worker gave it up.
    """
    for run in history.runs:
        most = 1 if run.serial else run.most
        if most is None:
            continue
        changes = list[tuple[float, int]]()
        for call in _tasks(history, run):
            until = call.ended if call.ending == COMPLETED else call.arrived
            cut = history.cut_at(call, REPORT_S)
            changes += [(call.arrived, 1), (max(min(until, cut or until), call.arrived), -1)]
        now = 0
        for moment, change in sorted(changes):
            now += change
            if now > most:
                yield f"{run.name} had {now} calls in flight at {moment:.2f} s, {most} are allowed"
                break


def order(history: History) -> Iterator[str]:
    """The items of a serial run begin in order, each after the answer to the one before."""
    for run in history.runs:
        if not run.serial:
            continue
        began, answered = dict[str, float](), dict[str, float]()
        for call in _tasks(history, run):
            began.setdefault(call.question, call.arrived)
            if call.ending == COMPLETED:
                answered.setdefault(call.question, call.ended)
        for number, (one, other) in enumerate(pairwise(run.questions)):
            if other in began and began[other] < answered.get(one, float("inf")):
                yield f"{run.name}: item {number + 1} began at {began[other]:.2f} s, before {number}'s answer"


def ahead(history: History) -> Iterator[str]:
    """No more items than the bound have begun and are not judged. Not judged where Redis has lost writes."""
    for run in history.runs:
        if run.ahead is None or history.forgets:
            continue
        begun = {call.question: call.arrived for call in reversed(_tasks(history, run))}
        judged = dict[str, float]()
        for call in history.calls:
            if call.question.startswith(JUDGED) and call.ending == COMPLETED:
                judged.setdefault(call.question.removeprefix(JUDGED), call.ended)
        changes = [(at, 1) for at in begun.values()]
        changes += [(judged[question], -1) for question in begun if question in judged]
        now = most = 0
        for _, change in sorted(changes):
            now += change
            most = max(most, now)
        if most > run.ahead:
            yield f"{run.name} had {most} items begun and not judged, {run.ahead} are allowed"


def budgets(history: History) -> Iterator[str]:
    """A run's calls are charged no more than its budget. Where Redis has lost writes, it forgets charges."""
    if history.forgets:
        return
    for run in history.runs:
        charged = sum(call.tokens for call in _tasks(history, run) if call.paid)
        if run.budget is not None and charged > run.budget:
            yield f"{run.name} was charged {charged} tokens, {run.budget} are allowed"


def sessions(history: History) -> Iterator[str]:
    """Each session is scored once, as a whole: with the answers to all of its items."""
    asked = {call.question for call in history.calls if call.ending == COMPLETED}
    for run in history.runs:
        if not run.records:
            continue
        if run.sessions != tuple((number, (1.0,)) for number in range(len(run.talks))):
            yield f"{run.name} has the sessions {_listed(run.sessions)} of {len(run.talks)}"
        for number, questions in enumerate(run.talks):
            if JUDGED + "".join(f"{question}; " for question in questions) not in asked:
                yield f"{run.name}: session {number} was not judged with all answers"


JUDGED = "judge "
"""The prompt of a judge: this, and the output that it judges."""


def fences(history: History) -> Iterator[str]:
    """No attempt is granted or executed twice, and no two schedulers lead in one epoch.

    Where Redis has lost its last writes, numbers that it has forgotten are used again.
    """
    if history.forgets:
        return
    granted, executed, terms = Counter[str](), Counter[str](), defaultdict[str, set[str]](set)
    for line in history.logs:
        attempt = f"{line.get('run')} job {line.get('job')} attempt {line.get('attempt')}"
        match line.get("event"):
            case "acquired":
                granted[attempt] += 1
            case "released" if line.get("wire_ms") is not None:
                executed[attempt] += 1
            case "leader_elected":
                terms[str(line.get("epoch"))].add(str(line.get("process")))
    for what, counts in (("granted", granted), ("executed", executed)):
        if twice := [name for name, count in counts.items() if count > 1]:
            yield f"{what} twice: {_listed(twice)}"
    for epoch, leaders in terms.items():
        if len(leaders) > 1:
            yield f"epoch {epoch} was led by {_listed(sorted(leaders))}"


def pauses(history: History) -> Iterator[str]:
    """A paused run starts nothing, nor does one that has ended."""
    if history.forgets:
        return
    for run in history.runs:
        stops = list(run.paused)
        if run.ended_early_s is not None and not run.continued:  # whose calls come later nobody can tell
            stops.append((run.ended_early_s, float("inf")))
        for begin, end in stops:
            late = [c for c in _tasks(history, run) if begin + ACTED_S < c.since and c.arrived < end]
            if late:
                yield f"{run.name} stopped at {begin:.2f} s, and {len(late)} calls arrived: {_shown(late[0])}"


def finished(history: History) -> Iterator[str]:
    """Every run is done within a bounded time after the last fault."""
    for run in history.runs:
        if run.done_s is None:
            yield f"{run.name} is {run.state or 'unknown'} with {run.jobs_done} of {run.jobs} jobs"
        elif run.done_s - history.last_fault_s > SETTLED_WITHIN_S:
            yield f"{run.name} took {run.done_s - history.last_fault_s:.0f} s after the last fault"


def left(history: History) -> Iterator[str]:
    """Nothing is left in Redis that no run needs."""
    yield from (f"{kind}: {what}" for kind, what in history.left.items())


def processes(history: History) -> Iterator[str]:
    """No process ends unless a fault ends it."""
    yield from history.died


def defects(history: History) -> Iterator[str]:
    """No process logs a defect of its own."""
    counts = Counter(
        f"{line['event']} of {line.get('process')}: {str(line.get('text', line.get('exception', '')))[-300:]}"
        for line in history.logs
        if line.get("event") in DEFECTS
    )
    yield from (f"{count} × {text}" for text, count in counts.most_common(_SHOWN))


CHECKS: dict[str, Callable[[History], Iterable[str]]] = {
    "records": records,
    "attempts": attempts,
    "paid_once": paid_once,
    "arrivals": arrivals,
    "concurrency": concurrency,
    "order": order,
    "ahead": ahead,
    "budgets": budgets,
    "sessions": sessions,
    "fences": fences,
    "pauses": pauses,
    "finished": finished,
    "left": left,
    "processes": processes,
    "defects": defects,
}


def _was_cut(history: History, call: Call) -> bool:
    margin = FORGOTTEN_S if history.forgets else REPORT_S
    return history.cut_at(call, margin) is not None


def _tasks(history: History, run: RunSeen) -> list[Call]:
    """The calls of a run's tasks, in the order of their arrival."""
    questions = frozenset(run.questions)
    return sorted((c for c in history.calls if c.question in questions), key=lambda call: call.arrived)


def _by_question(calls: Iterable[Call]) -> dict[tuple[str, str], list[Call]]:
    found = defaultdict[tuple[str, str], list[Call]](list)
    for call in calls:
        found[call.model, call.question].append(call)
    return found


def _shown(call: Call) -> str:
    return f"{call.worker} {call.arrived:.2f}–{call.ended:.2f} {call.ending}"


def _listed(found: Sequence[object]) -> str:
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{', '.join(str(each) for each in found[:_SHOWN])}{more}"
