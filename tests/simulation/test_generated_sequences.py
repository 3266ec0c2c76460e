"""Whatever users, operators, providers and machines do: each run ends, with one record a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typer.testing import CliRunner

from fairlane import Run, RunState, llm_judge
from fairlane.cli.main import app
from fairlane.client.submitting.row_writer import RowWriter
from fairlane.core.errors import FairlaneError
from fairlane.model import outcome as ends
from fairlane.model.job import JobState
from fairlane.model.tokens import Usage
from fairlane.store.write.budgets import Budgets
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.registry import Registry, TeamRecord
from fairlane_workers.providers.contract import Request
from tests.support.conservation import Books
from tests.support.direct import DirectRedis
from tests.support.redis import emptied, leaked_keys
from tests.support.whole import SETTINGS, WorkerProcess, deployed

MODELS, TEAMS = ("fast", "slow", "judge"), ("search", "ads")
LANES = tuple(f"sim:{model}" for model in MODELS)
MOODS: dict[str, tuple[float, Callable[[], ends.Outcome] | None]] = {
    "well": (1.0, None),
    "slow": (8.0, None),
    "limited": (0.1, lambda: ends.RateLimited("slow down", retry_after_ms=2000)),
    "overloaded": (0.2, lambda: ends.Overloaded("no capacity")),
    "broken": (0.3, lambda: ends.ServerError("oops")),
    "unreachable": (0.1, lambda: ends.NetworkFailure("refused", sent=False)),
    "hangs": (60.0, lambda: ends.TimedOut("no answer", deadline_ms=60_000)),
    "malformed": (0.4, lambda: ends.InvalidResponse("not JSON", 200, usage=Usage(10, 5))),
    "denied": (0.1, lambda: ends.AccessDenied("wrong key", 401)),
    "spent": (0.1, lambda: ends.AccessDenied("no money", 402, "quota")),
    "rejected": (0.2, lambda: ends.PermanentFailure("bad request", 400)),
}
"""Of a model's provider: the seconds that its calls take, and how they fail."""

RETURNED = ("limited", "overloaded", "broken", "unreachable", "denied", "spent", "rejected")
"""Moods in which a call may cost its team's budget nothing: a rejection, where it is of the lane."""

JUDGE = llm_judge("sim:judge", "J {{ output }}", {"yes": 1.0, "no": 0.0}, name="j")
OF_SESSION = llm_judge("sim:judge", "J {{ session }}", {"yes": 1.0}, name="s", level="session")
TALK = "{% for turn in _conversation %}{{ turn.input }} {{ turn.output }} {% endfor %}{{ q }}"
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "judged": {"evaluators": [JUDGE]},
    "repeated": {"repetitions": 2},
    "cached": {"cache": "read_write", "evaluators": [JUDGE]},
    "sessions": {"session": "s", "evaluators": [JUDGE, OF_SESSION]},
    "serial": {"run_serially": True},
    "talks": {"prompt": TALK, "conversation": "s", "session": "s", "evaluators": [OF_SESSION]},
    "remembers": {"run_serially": True, "store_output_as": "a{{ n }}"},
    "ahead": {"ahead": 2, "evaluators": [JUDGE]},
    "one at once": {"max_concurrent": 1},
    "budget": {"budget_tokens": 120, "params": {"max_tokens": 16}},
    "deadline": {"max_duration": 20.0},
    "outage": {"max_outage": 15.0},
    "later": {"start_in": 10.0},
    "holds": {"on_refusal": "hold"},
}
OF_RUN = ("status", "pause", "resume", "cancel", "why", "continue", "summary", "results", "archive")
COMMANDS = (*OF_RUN, "runs", "lanes", "budgets", "workers", "capacity", "doctor", "audit", "teams list")

some = st.integers(0, 9)
verbs = st.lists(st.sampled_from(["pause", "resume", "cancel"]), min_size=1, max_size=3)
teams, lanes = st.sampled_from(TEAMS), st.sampled_from(LANES)


NUMBERS = count()


@contextmanager
def or_a_sentence() -> Iterator[None]:
    """What cannot be done is said in a sentence."""
    try:
        yield
    except FairlaneError as error:
        if not str(error):
            raise


class Sequences(RuleBasedStateMachine):
    """While it is ``calm``, no worker is killed and Redis is well: no output may be lost, or paid twice."""

    def __init__(self, redis: DirectRedis, folder: Path) -> None:
        super().__init__()
        self.archive = f"sqlite:///{folder}/{next(NUMBERS)}.db"
        self.sent = self.returned = 0
        self.moods, self.answered = dict.fromkeys(MODELS, "well"), Counter[str]()
        self.scope = ExitStack()
        emptied(redis)
        self.path = redis.connection_pool.connection_kwargs["path"]
        settings = SETTINGS | {
            "teams": {team: {"budgets": [{"per": "month", "requests": 10**9}]} for team in TEAMS},
            "archive": {"url": self.archive},
        }
        self.whole = self.scope.enter_context(deployed(redis, self.answer, settings))
        self.lanes = Lanes(redis, self.whole.keys)
        self.budgets = Budgets(redis, self.whole.keys)
        self.clients = {team: self.whole.client(team) for team in TEAMS}
        self.runs, self.writers, self.calm = list[Run](), list[RowWriter](), True

    def answer(self, worker: WorkerProcess, request: Request) -> tuple[float, ends.Outcome]:
        text = str(request.messages[-1]["content"])
        text = text if text.startswith("J ") else text.split()[-1]
        seconds, failure = MOODS[self.moods[request.model]]
        self.sent += 1
        self.returned += self.moods[request.model] in RETURNED or worker.key_denied
        if worker.key_denied:
            return 0.1, ends.AccessDenied("wrong key", 401)
        if failure is not None:
            return seconds, failure()
        self.answered[text] += 1
        return seconds, ends.Success("yes" if text.startswith("J ") else f"({text})", Usage(10, 5))

    @initialize(calm=st.booleans(), kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=4))
    def begin(self, calm: bool, kinds: list[str]) -> None:
        self.calm = calm
        for number, kind in enumerate(kinds):
            self.submit(TEAMS[number % 2], 12, kind, number // 2 % 2)

    def pick(self, which: int) -> Run | None:
        """A run, rather one that goes on than one that has ended."""
        among = [run for run in self.runs if not run.status().state.finished] if which < 8 else []
        among = among or self.runs
        return among[-1 - which % len(among)] if among else None

    @rule(team=teams, rows=st.integers(1, 14), kind=st.sampled_from(sorted(KINDS)), model=st.integers(0, 1))
    def submit(self, team: str, rows: int, kind: str, model: int) -> None:
        number = len(self.runs)
        content = [{"q": f"{number}/{n}", "n": n, "s": f"t{n % 2}"} for n in range(rows)]
        with or_a_sentence():
            self.runs.append(
                self.clients[team].submit(content, model=LANES[model], **{"prompt": "{{ q }}"} | KINDS[kind])
            )

    @rule(team=teams, kind=st.sampled_from(["plain", "judged", "serial", "holds"]))
    def open(self, team: str, kind: str) -> None:
        with or_a_sentence():
            writer = self.clients[team].open("{{ q }}", model="sim:fast", **KINDS[kind])
            self.runs.append(writer.run)
            self.writers.append(writer)

    @rule(which=some, rows=st.integers(0, 3), closes=st.booleans())
    def write(self, which: int, rows: int, closes: bool) -> None:
        if self.writers:
            writer = self.writers[which % len(self.writers)]
            with or_a_sentence():
                for n in range(rows):
                    writer.write({"q": f"{writer.run.id}/{writer.accepted}", "n": n, "s": "t"})
            if closes:
                with or_a_sentence():
                    writer.close()

    @rule(which=some, verbs=verbs, after_s=st.sampled_from([0, 0.1, 1.5]))
    def control(self, which: int, verbs: list[str], after_s: float) -> None:
        self.whole.run_for(after_s)
        for verb in verbs if (run := self.pick(which)) else ():
            with or_a_sentence():
                getattr(run, verb)()

    @rule(team=teams, kind=st.sampled_from(sorted(KINDS)), verbs=verbs, after_s=st.sampled_from([0.05, 1.5]))
    def submit_and_control(self, team: str, kind: str, verbs: list[str], after_s: float) -> None:
        self.submit(team, 9, kind, 0)
        self.control(0, verbs, after_s)

    @rule(which=some, evaluators=st.sampled_from([None, (JUDGE,), ()]), retries=st.booleans())
    def go_on(self, which: int, evaluators: Any, retries: bool) -> None:
        if self.runs:
            run = self.runs[which % len(self.runs)]
            with or_a_sentence():
                client = self.clients[run.team]
                self.runs.append(client.continue_run(run, evaluators=evaluators, retry_errors=retries))

    @rule(which=some)
    def read(self, which: int) -> None:
        if run := self.pick(which):
            with or_a_sentence():
                if run.status().state.finished:
                    self.check(run)
                else:
                    run.summary(so_far=True)
                    assert str(run.why())

    @rule(lane=lanes, act=st.sampled_from(["pause", "resume", "drain"]))
    def operate(self, lane: str, act: str) -> None:
        if self.lanes.knows(lane):
            getattr(self.lanes, act)(lane)

    @rule(
        lane=lanes,
        name=st.sampled_from(["requests_per_minute", "max_concurrency", "tokens_per_minute"]),
        value=st.sampled_from([None, 1, 30, 600]),
    )
    def limit(self, lane: str, name: str, value: int | None) -> None:
        self.lanes.limit(lane, {name: value})

    @rule(
        team=teams,
        unit=st.sampled_from(["requests", "tokens"]),
        most=st.sampled_from([None, 1, 3, 10**6]),
        lane=st.sampled_from(["*", "sim:fast"]),
    )
    def budget(self, team: str, unit: str, most: int | None, lane: str) -> None:
        with or_a_sentence():
            self.budgets.set(team, "day", {unit: most}, lane)

    @rule(team=teams, weight=st.sampled_from([0.1, 1.0, 100.0]), most=st.sampled_from([None, 10.0]))
    def share(self, team: str, weight: float, most: float | None) -> None:
        Registry(self.whole.redis, self.whole.keys).put(team, TeamRecord(weight=weight, max_percent=most))

    @rule(model=st.sampled_from(MODELS), mood=st.sampled_from(sorted(MOODS)))
    def turn(self, model: str, mood: str) -> None:
        self.moods[model] = mood

    @rule(act=st.sampled_from(["add", "stop", "kill", "lose a reply", "deny", "allow"]), which=some)
    def work(self, act: str, which: int) -> None:
        alive = [worker for worker in self.whole.workers if not worker.dead]
        worker = alive[which % len(alive)] if alive else None
        if worker is None or (act == "add" and len(alive) < 3):
            self.whole.add_worker(slots=2 + which % 3)
        elif act == "stop":
            worker.stop()
        elif act == "kill" and not self.calm:
            worker.kill()
        elif act == "lose a reply":
            worker.loses_replies += 1
        elif act in ("deny", "allow"):
            worker.key_denied = act == "deny"

    @rule(act=st.sampled_from(["add", "kill", "hang"]), which=some, seconds=st.sampled_from([2, 10]))
    def lead(self, act: str, which: int, seconds: int) -> None:
        alive = [each for each in self.whole.schedulers if not each.dead]
        if len(alive) < 2 or (act == "add" and len(alive) < 3):
            self.whole.add_scheduler()
        elif act == "kill":
            alive[which % len(alive)].dead = True
        else:
            alive[which % len(alive)].hangs_ms = self.whole.now_ms + 1000 * seconds

    @precondition(lambda self: not self.calm)
    @rule(act=st.sampled_from(["away", "restart", "ahead", "back"]), seconds=st.sampled_from([1, 8, 40]))
    def upset_redis(self, act: str, seconds: int) -> None:
        whole = self.whole
        if act == "restart":
            whole.redis.script_flush()
            whole.redis.execute_command("FUNCTION FLUSH")
        if act in ("ahead", "back"):
            whole.step_ms += 1000 * seconds * (1 if act == "ahead" else -1)
        else:
            whole.away_ms = whole.now_ms + 1000 * seconds
            whole.run_for(seconds)

    @rule(which=some, command=st.sampled_from(COMMANDS), as_json=st.booleans())
    def command(self, which: int, command: str, as_json: bool) -> None:
        run = self.pick(which)
        words = command.split()
        if command in OF_RUN:
            if run is None or (
                command in ("summary", "results", "archive") and not run.status().state.finished
            ):
                return
            words.append(run.id)
        if as_json and command not in ("continue", "results"):
            words.append("--json")
        environment = {
            "FAIRLANE_REDIS__URL": f"unix://{self.path}?db=0",
            "FAIRLANE_REDIS__DEPLOYMENT": "test",
            "FAIRLANE_ARCHIVE__URL": self.archive,
            "FAIRLANE_TEAM": run.team if run else TEAMS[0],
        }
        result = CliRunner().invoke(app, words, env=environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        if command == "continue" and result.exit_code == 0 and run is not None:
            self.runs.append(self.clients[run.team].run(result.stdout.split()[-1]))

    @rule(seconds=st.sampled_from([0.003, 0.02, 0.2, 0.5, 2.0, 15.0]))
    def pass_time(self, seconds: float) -> None:
        self.whole.run_for(seconds)

    @invariant()
    def the_books_agree(self) -> None:
        assert not self.whole.defects, self.whole.defects
        Books(self.whole.redis, self.whole.keys).check(simple_runs_only=True)

    def teardown(self) -> None:
        with self.scope:
            self.bring_to_an_end()

    def bring_to_an_end(self) -> None:
        """Heal everything: then each run must end, and leave nothing that no run needs."""
        whole = self.whole
        self.moods = dict.fromkeys(MODELS, "well")
        for scheduler in whole.schedulers:
            scheduler.hangs_ms = 0
        for worker in whole.workers:
            worker.key_denied = False
        whole.add_scheduler()
        whole.add_worker(slots=20)
        for writer in self.writers:
            with or_a_sentence():
                writer.close()
        for team in TEAMS:
            for lane in ("*", "sim:fast"):
                self.budgets.set(team, "day", {"requests": None, "tokens": None}, lane)
        for lane in LANES:
            taken = dict.fromkeys(("max_concurrency", "tokens_per_minute"))
            self.lanes.limit(lane, {"requests_per_minute": 0, **taken})
        for _ in range(20):
            left = [run for run in self.runs if not run.status().state.finished]
            if not left:
                break
            for lane in filter(self.lanes.knows, LANES):
                self.lanes.resume(lane)
            for run in left:
                run.resume()
            whole.run_for(60)
        else:
            raise AssertionError([(run.status(), str(run.why())) for run in left])
        whole.run_for(70)
        assert not whole.defects, whole.defects
        for run in self.runs:
            self.check(run)
        self.check_outputs()
        used = sum(each.used for each in self.budgets.of(TEAMS, whole.redis_ms) if each.per == "month")
        least = self.sent - self.returned - self.controls()
        assert not self.calm or least <= used <= self.sent, (used, self.sent, least)
        Books(whole.redis, whole.keys).check()
        assert not leaked_keys(whole.redis)
        assert not any(whole.queues.values()), "messages are left"

    def check(self, run: Run) -> None:
        """A finished run has one record for each job."""
        status = run.status()
        if status.state is RunState.REFUSED:
            assert status.reason
            return
        records = list(run.results())
        assert [record.item for record in records] == list(range(status.items))
        assert sorted(record.item for record in run.stream()) == list(range(status.items))
        assert sum(status.by_state.values()) == status.jobs == status.jobs_done
        run.summary()
        list(run.sessions())

    def controls(self) -> int:
        """Calls that were answered before, and probed a lane that was shut: budgets and records have none."""
        return sum(worker.calls.controls for worker in self.whole.workers)

    def check_outputs(self) -> None:
        """Each output that a worker got is in a record, unless its run ended early or its worker failed."""
        kept, early = Counter[str](), set[str]()
        for run in self.runs:
            if (status := run.status()).state is RunState.REFUSED:
                continue
            for record in run.results():
                text = str(record.row["q"])
                kept[text] += record.state is JobState.SUCCEEDED
                if status.state is not RunState.COMPLETED:
                    early.add(text)
        got = {text: count for text, count in self.answered.items() if not text.startswith("J ")}
        lost = {text: count - kept[text] for text, count in got.items() if text not in early}
        assert not self.calm or sum(max(0, n) for n in lost.values()) <= self.controls(), lost


@pytest.mark.timeout(400)  # many sequences, on a machine that may be busy
def test_each_run_ends_whatever_happens(real_redis: DirectRedis, tmp_path: Path) -> None:
    run_state_machine_as_test(
        cast("type[Sequences]", partial(Sequences, real_redis, tmp_path)),
        settings=settings(
            max_examples=12,
            stateful_step_count=40,
            phases=set(Phase) - {Phase.explain},
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
