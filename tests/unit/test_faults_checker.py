"""Each check of the fault checker finds its violation in a history that was broken on purpose."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.checker import CHECKS, JUDGED, SETTLED_WITHIN_S, check, stated, windows
from tests.faults.history import (
    FORGOTTEN_S,
    ON_ITS_WAY_S,
    QUIET_S,
    Call,
    Entry,
    History,
    Limit,
    RunSeen,
    Span,
)
from tests.faults.kinds import ANY
from tests.faults.provider import waiting_since
from tests.faults.schedule import Schedule, Timed

RATE, BURST = 5.0, 5.0
JUDGE, TASKS, ITEMS = "b", "a", 6
KILLED = Span("worker_kill", ("worker-1",), 0.5, 1.5)
POWER = Span("redis_power", (ANY,), 3.0, 3.5)


def call(question: str, at: float, *, model: str = TASKS, worker: str = "worker-1", **fields: object) -> Call:
    made = Call(model, question, worker, arrived=at, since=at, ended=at + 0.1, ending="completed")
    return replace(made, **fields)  # type: ignore[arg-type]


def question(n: int) -> str:
    return f"question {n}"


def whole() -> History:
    """A history without a fault: a serial run of six items with a judge, one item every 0.3 s."""
    tasks = [call(question(n), 0.3 * n) for n in range(ITEMS)]
    judges = [call(JUDGED + question(n), 0.3 * n + 0.15, model=JUDGE) for n in range(ITEMS)]
    run = RunSeen(
        "judged",
        "1",
        "red",
        tuple(question(n) for n in range(ITEMS)),
        state="completed",
        judges=1,
        most=1,
        serial=True,
        ahead=1,
        max_attempts=3,
        records=tuple(Entry(n, "succeeded", question(n), (1.0,), 1) for n in range(ITEMS)),
        by_state={"succeeded": 2 * ITEMS},
        jobs=2 * ITEMS,
        jobs_done=2 * ITEMS,
        done_s=2.0,
    )
    logs = [{"event": "acquired", "run": "1", "job": n, "attempt": 1} for n in range(2 * ITEMS)]
    logs += [
        {"event": "released", "run": "1", "job": n, "attempt": 1, "wire_ms": 5} for n in range(2 * ITEMS)
    ]
    logs += [{"event": "leader_elected", "epoch": n, "process": f"scheduler-{n}"} for n in (1, 2)]
    return History(
        Schedule(1, (Timed(1.0, 1.0, "worker_kill", "worker-1"),)),
        calls=(*tasks, *judges),
        runs=(run,),
        limits={TASKS: (Limit(0.0, RATE, BURST),)},
        logs=tuple(logs),
    )


def with_run(history: History, **changes: object) -> History:
    return replace(history, runs=(replace(history.runs[0], **changes),))  # type: ignore[arg-type]


def with_call(history: History, *more: Call) -> History:
    return replace(history, calls=(*history.calls, *more))


def broken(history: History) -> set[str]:
    return {violation.check for violation in check(history)}


def entry(n: int, **changes: object) -> tuple[Entry, ...]:
    records = list(whole().runs[0].records)
    records[n] = replace(records[n], **changes)  # type: ignore[arg-type]
    return tuple(records)


def test_a_whole_history_breaks_nothing() -> None:
    assert check(whole()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"records": whole().runs[0].records[:-1]},
        {"records": (*whole().runs[0].records, Entry(5, "succeeded", question(5), (1.0,), 1))},
        {"records": entry(2, output=question(3))},
        {"records": entry(2, output=None)},
        {"records": entry(2, state="failed", error="no")},
        {"records": entry(2, scores=(None,))},
        {"state": "cancelled"},
        {"jobs_done": 11},
        {"by_state": {"succeeded": 11}},
        {"error": "RunNotFound"},
    ],
    ids=str,
)
def test_a_record_that_is_missing_twice_wrong_or_failed_is_found(changes: dict[str, object]) -> None:
    assert broken(with_run(whole(), **changes)) == {"records"}


def test_a_cancelled_run_may_hold_cancelled_records_but_must_be_cancelled() -> None:
    cancelled = with_run(
        whole(), state="cancelled", ending="cancelled", records=entry(5, state="cancelled", output=None)
    )
    assert broken(cancelled) == set()
    completed = with_run(whole(), ending="cancelled")
    assert broken(completed) == {"records"}
    assert broken(replace(completed, faults=(POWER,))) == set()


def test_an_attempt_that_no_failure_accounts_for_is_found() -> None:
    history = with_run(whole(), records=entry(2, attempts=2))
    assert broken(history) == {"attempts"}
    assert broken(replace(history, faults=(Span("leader_kill", ("scheduler-1",), 0.5, 1.5),))) == {"attempts"}
    assert broken(replace(history, faults=(Span("provider_500", (ANY,), 0.5, 1.5),))) == set()
    assert broken(replace(history, faults=(KILLED,))) == set()


def test_a_run_may_be_lost_only_where_it_was_submitted_right_before_a_power_loss() -> None:
    lost = with_run(whole(), state="lost", records=())
    assert broken(lost) == {"records"}
    assert broken(with_run(lost, may_be_lost=True)) == set()


def test_a_call_that_is_paid_twice_is_found() -> None:
    again = with_call(whole(), call(question(2), 5.0))
    assert broken(again) == {"paid_once"}


def test_more_attempts_than_a_job_has_are_found() -> None:
    history = with_run(whole(), records=entry(2, attempts=4))
    assert broken(replace(history, faults=(KILLED,))) == {"records"}


@pytest.mark.parametrize("ending", ["malformed", "cut_stream", "reset_after_work"])
def test_a_call_whose_answer_the_provider_broke_may_be_paid_again(ending: str) -> None:
    first, *others = whole().calls
    history = replace(whole(), calls=(*others, replace(first, ending=ending), call(question(0), 0.2)))
    assert "paid_once" not in broken(history)


@pytest.mark.parametrize("ending", ["abandoned", "rejected", "error_500", "reset", ""])
def test_a_call_that_was_not_paid_may_be_made_again(ending: str) -> None:
    assert "paid_once" not in broken(with_call(whole(), call(question(2), 5.0, ending=ending)))


def test_a_call_that_a_fault_cut_may_be_paid_again_and_no_other() -> None:
    history = with_call(whole(), call(question(2), 5.0))
    assert broken(replace(history, faults=(KILLED,))) == set()
    other = replace(KILLED, hit=("worker-2",))
    assert broken(replace(history, faults=(other,))) == {"paid_once"}
    later = replace(KILLED, begin=3.0, end=4.0)
    assert broken(replace(history, faults=(later,))) == {"paid_once"}
    nap = Span("worker_nap", ("worker-1",), 0.5, 1.5)
    assert broken(replace(history, faults=(nap,))) == {"paid_once"}


def test_a_fault_cuts_a_call_whose_answer_waits_in_a_provider_that_hangs() -> None:
    again = with_call(whole(), call(question(2), 5.0))
    later = replace(KILLED, begin=3.0, end=4.0)
    hung = Span("provider_hangs", (ANY,), 0.5, 3.5)
    assert broken(replace(again, faults=(hung, later))) == set()
    assert broken(replace(again, faults=(replace(hung, end=2.0), later))) == {"paid_once"}
    ended = 0.7  # of the first call
    on_its_way = replace(hung, begin=ended + ON_ITS_WAY_S / 2)
    assert broken(replace(again, faults=(on_its_way, later))) == set()
    arrived = replace(hung, begin=ended + 2 * ON_ITS_WAY_S)
    assert broken(replace(again, faults=(arrived, later))) == {"paid_once"}


def test_faults_that_silence_a_worker_one_after_the_other_cut_its_calls_together() -> None:
    again = with_call(whole(), call(question(2), 5.0))
    away, apart = Span("redis_kill", (ANY,), 0.65, 1.8), Span("partition", ("worker-1",), 1.0, 2.4)
    lost = Span("requests_lost", ("worker-1",), 2.4 + QUIET_S / 2, 3.6)
    assert broken(replace(again, faults=(away, apart, lost))) == set()
    elsewhere = replace(apart, hit=("worker-2",)), replace(lost, hit=("worker-2",))
    assert broken(replace(again, faults=(away, *elsewhere))) == {"paid_once"}
    spoke = replace(lost, begin=2.4 + 2 * QUIET_S)
    assert broken(replace(again, faults=(away, apart, spoke))) == {"paid_once"}
    assert broken(replace(again, faults=(away, replace(away, begin=2.0, end=5.0)))) == {"paid_once"}


def test_a_call_may_be_paid_again_only_once_for_one_cut() -> None:
    history = with_call(whole(), call(question(2), 5.0), call(question(2), 6.0))
    assert broken(replace(history, faults=(KILLED,))) == {"paid_once"}


def test_what_redis_forgot_may_be_paid_again_and_what_it_knew_may_not() -> None:
    early, late = whole().calls[0], whole().calls[5]
    assert early.ended < POWER.begin - FORGOTTEN_S < late.ended
    assert broken(replace(with_call(whole(), call(late.question, 5.0)), faults=(POWER,))) == set()
    assert broken(replace(with_call(whole(), call(early.question, 5.0)), faults=(POWER,))) == {"paid_once"}


def test_a_power_loss_may_take_what_redis_received_after_it_was_away() -> None:
    early = whole().calls[2]
    again = with_call(whole(), call(early.question, 9.0))
    away = Span("redis_term", (ANY,), early.ended, early.ended + 1.1)
    lost = replace(POWER, begin=away.end + FORGOTTEN_S, end=away.end + FORGOTTEN_S + 1.0)
    assert broken(replace(again, faults=(away, lost))) == set()
    assert broken(replace(again, faults=(lost,))) == {"paid_once"}
    late = replace(lost, begin=lost.begin + 1.0, end=lost.end + 1.0)
    assert broken(replace(again, faults=(away, late))) == {"paid_once"}


def test_a_burst_beyond_what_is_stated_is_found() -> None:
    def burst(count: int) -> History:
        more = [call(f"other {n}", 10.0, ending="rejected") for n in range(count)]
        return with_call(whole(), *more)

    assert broken(burst(5)) == set()
    assert broken(burst(7)) == {"arrivals"}


def test_a_rate_beyond_what_is_stated_is_found() -> None:
    def steady(per_second: float) -> History:
        more = [call(f"other {n}", 10.0 + n / per_second, ending="rejected") for n in range(60)]
        return with_call(whole(), *more)

    assert broken(steady(RATE)) == set()
    assert broken(steady(RATE * 1.2)) == {"arrivals"}


def test_calls_that_a_stalled_harness_saw_late_are_given_the_time_it_stalled() -> None:
    more = [call(f"other {n}", 10.0, ending="rejected", since=9.0) for n in range(10)]
    assert broken(with_call(whole(), *more)) == set()


def test_a_limit_that_changes_holds_from_then_on() -> None:
    limits = [Limit(0.0, 10.0, 10.0), Limit(5.0, 2.0, 2.0)]
    assert stated(limits, 0.0, 1.0) == pytest.approx(20.0)
    assert stated(limits, 4.0, 6.0) == pytest.approx(10 + 2 + 10)
    assert stated(limits, 6.0, 7.0) == pytest.approx(4.0)
    assert stated(limits, -1.0, 1.0) == pytest.approx(30.0)


def test_more_calls_at_once_than_a_run_may_have_are_found() -> None:
    long = replace(whole().calls[0], ended=0.35)
    history = with_run(replace(whole(), calls=(long, *whole().calls[1:])), serial=False, ahead=None)
    assert broken(history) == {"concurrency"}
    assert broken(replace(history, faults=(replace(KILLED, begin=0.2),))) == set()
    assert broken(replace(history, faults=(replace(KILLED, hit=("worker-2",)),))) == {"concurrency"}


def test_an_item_that_begins_before_the_one_before_it_is_answered_is_found() -> None:
    first, second, *others = whole().calls
    swapped = replace(second, question=first.question), replace(first, question=second.question)
    assert "order" in broken(replace(whole(), calls=(*swapped, *others)))


def test_more_items_under_way_than_the_bound_are_found() -> None:
    late = [replace(each, ended=each.ended + 1) if each.model == JUDGE else each for each in whole().calls]
    history = replace(whole(), calls=tuple(late))
    assert broken(history) == {"ahead"}
    assert broken(with_run(history, ahead=5)) == set()


@pytest.mark.parametrize(
    "line",
    [
        {"event": "acquired", "run": "1", "job": 3, "attempt": 1},
        {"event": "released", "run": "1", "job": 3, "attempt": 1, "wire_ms": 9},
        {"event": "leader_elected", "epoch": 2, "process": "scheduler-1"},
    ],
    ids=lambda line: line["event"],
)
def test_a_second_grant_execution_or_term_of_one_number_is_found(line: dict[str, object]) -> None:
    history = replace(whole(), logs=(*whole().logs, line))
    assert broken(history) == {"fences"}
    assert broken(replace(history, faults=(POWER,))) == set()


def test_a_leader_that_renews_its_lease_after_a_break_leads_in_the_same_epoch() -> None:
    line = {"event": "leader_elected", "epoch": 2, "process": "scheduler-2"}
    assert broken(replace(whole(), logs=(*whole().logs, line))) == set()


def test_a_permit_that_was_returned_is_no_second_execution() -> None:
    line = {"event": "released", "run": "1", "job": 3, "attempt": 1, "wire_ms": None}
    assert broken(replace(whole(), logs=(*whole().logs, line))) == set()


def test_a_call_of_a_paused_or_cancelled_run_is_found() -> None:
    assert broken(with_run(whole(), paused=((0.0, 1.4),))) == {"pauses"}
    assert broken(with_run(whole(), paused=((0.0, 1.1),))) == set()
    assert broken(with_run(whole(), ended_early_s=0.1)) == {"pauses"}
    assert broken(with_run(whole(), ended_early_s=1.9)) == set()


@pytest.mark.parametrize(("ending", "state"), [("stopped", "skipped"), ("timed_out", "timed_out")])
def test_items_end_as_their_run_does_or_succeed(ending: str, state: str) -> None:
    def ended(state: str) -> History:
        return with_run(whole(), state=ending, ending=ending, records=entry(5, state=state, output=None))

    assert broken(ended(state)) == set()
    assert broken(ended("cancelled")) == {"records"}


def test_more_tokens_than_a_budget_are_found() -> None:
    history = replace(whole(), calls=tuple(replace(call, tokens=10) for call in whole().calls))
    assert broken(with_run(history, budget=10 * ITEMS)) == set()
    spent = with_run(history, budget=10 * ITEMS - 1)
    assert broken(spent) == {"budgets"}
    assert "budgets" not in broken(replace(spent, faults=(POWER,)))


def test_a_session_that_is_not_scored_once_and_as_a_whole_is_found() -> None:
    talks = tuple(tuple(question(n) for n in range(first, first + 3)) for first in (0, 3))
    judged = [call(JUDGED + "".join(f"{one}; " for one in talk), 2.0, model=JUDGE) for talk in talks]
    scored = with_run(with_call(whole(), *judged), talks=talks, sessions=((0, (1.0,)), (1, (1.0,))))
    assert broken(scored) == set()
    assert broken(with_run(scored, sessions=((0, (1.0,)),))) == {"sessions"}
    assert broken(with_run(scored, sessions=((0, (1.0,)), (1, (None,))))) == {"sessions"}
    assert broken(replace(scored, calls=scored.calls[:-1])) == {"sessions"}


def test_what_a_cancelled_run_did_not_complete_the_run_that_continues_it_pays() -> None:
    cancelled = with_run(
        with_call(whole(), call(question(5), 5.0)),
        state="cancelled",
        ending="cancelled",
        ended_early_s=2.0,
        records=entry(5, state="cancelled", output=None),
    )
    assert "paid_once" in broken(cancelled)
    assert broken(with_run(cancelled, continued=True)) == set()
    assert broken(with_run(with_call(cancelled, call(question(4), 6.0)), continued=True)) == {"paid_once"}


def test_a_run_that_does_not_end_or_ends_late_is_found() -> None:
    assert broken(with_run(whole(), done_s=None)) == {"finished"}
    assert broken(with_run(whole(), done_s=SETTLED_WITHIN_S + 1)) == {"finished"}
    assert broken(with_run(replace(whole(), faults=(KILLED,)), done_s=SETTLED_WITHIN_S + 1)) == set()


def test_what_is_left_who_died_and_what_was_logged_as_a_defect_are_found() -> None:
    assert broken(replace(whole(), left={"leases": "1"})) == {"left"}
    assert broken(replace(whole(), died=("worker-3 exited with code 1",))) == {"processes"}
    assert broken(replace(whole(), logs=({"event": "attempt_failed", "process": "worker-1"},))) == {"defects"}


def test_every_check_has_found_something_here() -> None:
    named = {
        "records", "attempts", "paid_once", "arrivals", "concurrency", "order", "ahead", "budgets",
        "sessions", "fences", "pauses", "finished", "left", "processes", "defects",
    }  # fmt: skip
    assert set(CHECKS) == named


@given(
    gaps=st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 0.3)), min_size=1, max_size=30),
    per_second=st.floats(1, 40),
)
def test_the_worst_window_under_one_limit_is_that_of_all_windows(
    gaps: list[tuple[float, float]], per_second: float
) -> None:
    at, calls = 0.0, list[Call]()
    for gap, doubt in gaps:
        at += gap
        calls.append(replace(call(question(len(calls)), at), since=at - doubt))
    limit = Limit(-1.0, per_second, 2.0)
    (one, *_), (many, *_) = (
        max(windows(calls, limits)) for limits in ([limit], [limit, replace(limit, since=1e9)])
    )
    assert one == pytest.approx(many, abs=1e-6)


def test_a_request_that_is_read_after_a_stall_of_the_provider_may_have_come_in_it() -> None:
    beats = [1.0, 1.01, 1.02, 3.0, 3.15, 3.3]
    assert waiting_since(beats[:3], 1.025) == 1.01
    assert waiting_since(beats, 3.31) == 1.02
    assert waiting_since([*beats, 3.6, 3.61], 3.62) == 3.6, "all that waited has been read"
    assert waiting_since([], 1.0) == waiting_since([0.9], 1.0) == 1.0
