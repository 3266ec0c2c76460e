"""Checks that a deployment's keys are consistent; they must be so between any two scripts."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from redis import Redis

from fairlane.model.job import TERMINAL
from fairlane.model.run import RunRef, RunState
from fairlane.store.keys import Keys
from tests.support.contents import read_contents


class Books:
    """All data on runs, jobs and leases, read once and compared with each other."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.keys, self.contents = keys, read_contents(redis)
        self.parts = {
            name: name.removeprefix(keys.prefix).split(":", 4)
            for name in self.contents
            if name.startswith(keys.prefix)
        }
        self.leased: dict[str, dict[str, Any]] = {
            name: json.loads(record) for name, record in self._hash(keys.leased).items()
        }
        self.places: dict[RunRef, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._find_jobs()

    def check(self, *, simple_runs_only: bool = False) -> None:
        """Raises `AssertionError` at the first inconsistency.

        With ``simple_runs_only``, a running run with sessions, conversations, an order of its items or rows
        that follow is not looked at.
        """
        self._check_leases()
        for ref in self.runs():
            state = self._hash(self.keys.state(ref))
            if state["state"] == "running":
                others = {"first_session_job", "serial", "open", "turns"} & set(state)
                if not (simple_runs_only and others) and self.keys.fed(ref) not in self.contents:
                    self._check_running(ref, state)
            else:
                self._check_ended(ref, state)

    def runs(self) -> list[RunRef]:
        """The admitted and the ended runs that have not expired."""
        parts = self.parts.values()
        return [RunRef(part[1], part[2]) for part in parts if part[0] == "run" and part[3:] == ["state"]]

    def _find_jobs(self) -> None:
        for name, part in self.parts.items():
            if part[0] == "run" and len(part) == 5:
                for entry in self._list(name):
                    self._place(RunRef(part[1], part[2]), entry, part[3])
        for member in self._zset(self.keys.delayed):
            ref, entry, _ = member.split("|", 2)
            self._place(RunRef.parse(ref), entry, "delayed")
        for lease in self.leased.values():
            self._place(RunRef.parse(lease["ref"]), f"{lease['job']}:", "leased")

    def _place(self, ref: RunRef, entry: str, place: str) -> None:
        self.places[ref][int(entry.partition(":")[0])].append(place)

    def _check_leases(self) -> None:
        assert set(self._zset(self.keys.leases)) == set(self.leased), "leases and their records differ"
        held = Counter(lease["lane"] for lease in self.leased.values())
        lanes = self._set(self.keys.lanes)
        assert set(held) <= lanes
        for lane in lanes:
            count = int(self._hash(self.keys.lane(lane)).get("inflight", 0))
            assert count == held[lane], f"{lane}: {count} in flight, {held[lane]} leases"
            teams = Counter(
                RunRef.parse(lease["ref"]).team for lease in self.leased.values() if lease["lane"] == lane
            )
            flying = {team: int(number) for team, number in self._hash(self.keys.in_flight(lane)).items()}
            assert flying == teams, f"{lane}: in flight by team"
            pending = sum("pending" in lease for lease in self.leased.values() if lease["lane"] == lane)
            assert int(self._hash(self.keys.lane(lane)).get("pending", 0)) == pending, f"{lane}: pending"

    def _check_running(self, ref: RunRef, state: dict[str, str]) -> None:
        places, done = self.places[ref], self._done(ref, int(state["jobs"]))
        items, steps, cursor = int(state["items"]), int(state["steps"]), int(state["cursor"])
        finished = [int(item) for item in self._list(self.keys.finished(ref))]
        listed = Counter(finished)
        for item in range(items):
            task, *judges = range(item * steps, (item + 1) * steps)
            self._check_job(ref, task, places[task], task in done, known=item < cursor)
            for judge in judges:
                self._check_job(ref, judge, places[judge], judge in done, known=task in done)
            over = done.issuperset({task, *judges})
            assert listed[item] == over, f"{ref} item {item}: listed {listed[item]} times"
        assert set(places) <= set(range(items * steps)), f"{ref}: jobs that it does not have"

        by_state = {name: int(count) for name, count in state.items() if name.startswith("n:")}
        assert set(by_state) <= {f"n:{terminal}" for terminal in TERMINAL}
        assert int(state["jobs_done"]) == len(done) == sum(by_state.values())
        assert {int(job) for job in self._hash(self.keys.results(ref))} == done
        assert int(state["items_done"]) == len(finished) < items
        leased = sum("leased" in where for where in places.values())
        assert int(state.get("in_flight", 0)) == leased
        if "tasks_in_flight" in state:
            own = (lease for lease in self.leased.values() if RunRef.parse(lease["ref"]) == ref)
            assert int(state["tasks_in_flight"]) == sum(bool(lease.get("task")) for lease in own)
        assert not {int(job) for job in self._hash(self.keys.jobs(ref))} & done
        self._check_lanes(ref, state)
        assert str(ref) in self._set(self.keys.active)
        for key in (self.keys.state(ref), self.keys.plan(ref), self.keys.spec(ref), self.keys.rows(ref)):
            assert not self.contents[key].expires, f"{key} of a running run expires"

    def _check_job(self, ref: RunRef, job: int, places: list[str], done: bool, *, known: bool) -> None:
        where = [*places, *(["done"] if done else [])]
        assert len(where) == known, f"{ref} job {job} is in {where or 'no place'}"

    def _check_lanes(self, ref: RunRef, state: dict[str, str]) -> None:
        for name, count in state.items():
            if name.startswith("over:"):
                assert int(count) <= int(state.get(f"known:{name[5:]}", 0)), (
                    f"{ref}: {name} exceeds its known"
                )
        known = self._set(self.keys.run_lanes(ref))
        for part in self.parts.values():
            if part[:3] == ["run", ref.team, ref.run] and len(part) == 5:
                assert part[4] in known, f"{ref}: work on {part[4]}, which is not among its lanes"

    def _check_ended(self, ref: RunRef, state: dict[str, str]) -> None:
        assert RunState(state["state"]).finished
        assert int(state["in_flight"]) == 0
        assert str(ref) not in self._set(self.keys.active)
        assert state.get("jobs_done", "0") == state["jobs"]
        assert state.get("items_done", "0") == state["items"]
        assert sum(int(n) for name, n in state.items() if name.startswith("n:")) == int(state["jobs"])
        if "archived" in state:
            left = {self.keys.results(ref), self.keys.rows(ref), self.keys.finished(ref)} & set(self.contents)
            assert not left, f"{left} are left of an archived run"
        elif state["state"] == "completed":
            assert len(self._done(ref, int(state["jobs"]))) == int(state["jobs"])
            assert len(self._hash(self.keys.results(ref))) == int(state["jobs"])
            assert len(self._list(self.keys.finished(ref))) == int(state["items"])
        # Jobs in back-off are dropped when they are due.
        assert all(where == ["delayed"] for where in self.places[ref].values())
        for name, part in self.parts.items():
            if part[:3] == ["run", ref.team, ref.run] or part[:4] == ["team", ref.team, "run", ref.run]:
                assert self.contents[name].expires, f"{name} outlives its run"

    def _done(self, ref: RunRef, jobs: int) -> set[int]:
        held = self.contents.get(self.keys.done(ref))
        bits = held.value if held and isinstance(held.value, bytes) else b""
        done = {n for n in range(8 * len(bits)) if bits[n // 8] >> (7 - n % 8) & 1}
        assert done <= set(range(jobs)), f"{ref}: records of jobs that it does not have"
        return done

    def _hash(self, key: str) -> dict[str, str]:
        value: Any = self.contents[key].value if key in self.contents else {}
        return {name.decode(): field.decode() for name, field in value.items()}

    def _list(self, key: str) -> list[str]:
        value: Any = self.contents[key].value if key in self.contents else []
        return [entry.decode() for entry in value]

    def _set(self, key: str) -> set[str]:
        return set(self._list(key))

    def _zset(self, key: str) -> list[str]:
        value: Any = self.contents[key].value if key in self.contents else []
        return [member.decode() for member, _ in value]
