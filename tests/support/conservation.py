"""What must be true of a deployment's keys at any moment, between any two scripts."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from redis import Redis

from fairlane.job import TERMINAL
from fairlane.store.keys import Keys, RunRef


class Books:
    """Everything the store says of runs, jobs and leases, read once and compared with itself."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis, self.keys = redis, keys
        self.leases = {name.decode() for name in redis.zrange(keys.leases, 0, -1)}
        self.leased: dict[str, dict[str, Any]] = {
            name.decode(): json.loads(record) for name, record in redis.hgetall(keys.leased).items()
        }
        names = [name.decode() for name in redis.scan_iter(match=f"{_literal(keys.prefix)}*", count=10_000)]
        self.names = [name.removeprefix(keys.prefix) for name in names]
        self.places: dict[RunRef, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._find_jobs()

    def check(self) -> None:
        """Raises `AssertionError` at the first contradiction."""
        self._check_leases()
        for ref in self.runs():
            state = self._hash(self.keys.state(ref))
            if state["state"] == "running":
                self._check_running(ref, state)
            else:
                self._check_ended(ref, state)

    def runs(self) -> list[RunRef]:
        """Runs that are admitted or ended and have not expired."""
        parts = [name.split(":") for name in self.names]
        return [RunRef(part[1], part[2]) for part in parts if part[0] == "run" and part[3:] == ["state"]]

    def _find_jobs(self) -> None:
        for name in self.names:
            part = name.split(":", 4)
            if part[0] == "run" and len(part) == 5:
                for entry in self.redis.lrange(self.keys.prefix + name, 0, -1):
                    self._place(RunRef(part[1], part[2]), entry.decode(), part[3])
        for member in self.redis.zrange(self.keys.delayed, 0, -1):
            ref, entry, _ = member.decode().split("|", 2)
            self._place(RunRef.parse(ref), entry, "delayed")
        for lease in self.leased.values():
            self._place(RunRef.parse(lease["ref"]), f"{lease['job']}:", "leased")

    def _place(self, ref: RunRef, entry: str, place: str) -> None:
        self.places[ref][int(entry.partition(":")[0])].append(place)

    def _check_leases(self) -> None:
        assert self.leases == set(self.leased), "leases and their records differ"
        held = Counter(lease["lane"] for lease in self.leased.values())
        for name in self.redis.smembers(self.keys.lanes):
            lane = name.decode()
            count = int(self.redis.hget(self.keys.lane(lane), "inflight") or 0)
            assert count == held[lane], f"{lane}: {count} in flight, {held[lane]} leases"
        assert set(held) <= {name.decode() for name in self.redis.smembers(self.keys.lanes)}

    def _check_running(self, ref: RunRef, state: dict[str, str]) -> None:
        places, done = self.places[ref], self._done(ref, int(state["jobs"]))
        items, steps, cursor = int(state["items"]), int(state["steps"]), int(state["cursor"])
        finished = [int(item) for item in self.redis.lrange(self.keys.finished(ref), 0, -1)]
        for item in range(items):
            task, *judges = range(item * steps, (item + 1) * steps)
            self._check_job(ref, task, places[task], task in done, known=item < cursor)
            for judge in judges:
                self._check_job(ref, judge, places[judge], judge in done, known=task in done)
            over = done.issuperset({task, *judges})
            assert finished.count(item) == over, f"{ref} item {item}: listed {finished.count(item)} times"
        assert set(places) <= set(range(items * steps)), f"{ref}: jobs that it does not have"

        by_state = {name: int(count) for name, count in state.items() if name.startswith("n:")}
        assert set(by_state) <= {f"n:{terminal}" for terminal in TERMINAL}
        assert int(state["jobs_done"]) == len(done) == sum(by_state.values())
        assert {int(job) for job in self.redis.hkeys(self.keys.results(ref))} == done
        assert int(state["items_done"]) == len(finished) < items
        leased = sum("leased" in where for where in places.values())
        assert int(state.get("in_flight", 0)) == leased
        assert not {int(job) for job in self.redis.hkeys(self.keys.jobs(ref))} & done
        self._check_lanes(ref, state)
        assert self.redis.sismember(self.keys.active, str(ref))
        for key in (self.keys.state(ref), self.keys.plan(ref), self.keys.spec(ref), self.keys.rows(ref)):
            assert self.redis.ttl(key) == -1, f"{key} of a running run expires or is gone"

    def _check_job(self, ref: RunRef, job: int, places: list[str], done: bool, *, known: bool) -> None:
        where = [*places, *(["done"] if done else [])]
        assert len(where) == known, f"{ref} job {job} is in {where or 'no place'}"

    def _check_lanes(self, ref: RunRef, state: dict[str, str]) -> None:
        known = {name.decode() for name in self.redis.smembers(self.keys.run_lanes(ref))}
        for name, count in state.items():
            if name.startswith("over:"):
                assert int(count) <= int(state.get(f"known:{name[5:]}", 0)), (
                    f"{ref}: {name} exceeds its known"
                )
        for part in (name.split(":", 4) for name in self.names):
            if part[:3] == ["run", ref.team, ref.run] and len(part) == 5:
                assert part[4] in known, f"{ref}: work on {part[4]}, which is not among its lanes"

    def _check_ended(self, ref: RunRef, state: dict[str, str]) -> None:
        assert state["state"] in {"completed", "cancelled", "refused"}
        assert int(state["in_flight"]) == 0
        assert not self.redis.sismember(self.keys.active, str(ref))
        assert state.get("jobs_done", "0") == state["jobs"]
        assert state.get("items_done", "0") == state["items"]
        assert sum(int(n) for name, n in state.items() if name.startswith("n:")) == int(state["jobs"])
        if state["state"] == "completed":
            assert self.redis.bitcount(self.keys.done(ref)) == int(state["jobs"])
            assert self.redis.hlen(self.keys.results(ref)) == int(state["jobs"])
            assert self.redis.llen(self.keys.finished(ref)) == int(state["items"])
        # What waits out a delay is dropped when it is due.
        assert all(where == ["delayed"] for where in self.places[ref].values())
        owned = (f"run:{ref.team}:{ref.run}:", f"team:{ref.team}:run:{ref.run}:")
        for name in self.names:
            if name.startswith(owned):
                assert self.redis.pttl(self.keys.prefix + name) >= 0, f"{name} outlives its run"

    def _done(self, ref: RunRef, jobs: int) -> set[int]:
        bits = self.redis.get(self.keys.done(ref)) or b""
        done = {n for n in range(8 * len(bits)) if bits[n // 8] >> (7 - n % 8) & 1}
        assert done <= set(range(jobs)), f"{ref}: records of jobs that it does not have"
        return done

    def _hash(self, key: str) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.redis.hgetall(key).items()}


def _literal(text: str) -> str:
    """Text as a SCAN pattern that matches nothing else."""
    return text.replace("[", "\\[").replace("*", "\\*").replace("?", "\\?")
