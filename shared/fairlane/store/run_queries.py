"""What the scheduler reads of runs, and the pages of rows that it keeps for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlane.run import Plan
from fairlane.sessions import seats_field
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys, RunRef
from fairlane.store.untrusted import answers, read_untrusted

ORIGINS = "from:"
"""Fields of a run's rows that tell where a page's rows were in the run before."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """A job that waits out its back-off."""

    member: str
    ref: RunRef
    entry: str
    lane: str


class Extent(NamedTuple):
    """Items looked at so far, rows there are so far, whether there will be more, when the run was admitted,
    and whether it is paused.
    """

    cursor: int
    rows: int
    open: bool
    started_ms: int
    paused: bool = False


class RunQueries:
    """Reads; what a client wrote is hostile until it has been read."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self.redis, self.keys = redis, keys

    def active(self) -> list[RunRef]:
        """Runs that are not finished."""
        return [RunRef.parse(ref.decode()) for ref in self.redis.smembers(self.keys.active)]

    def spec_text(self, ref: RunRef, most: int = -1) -> bytes | None:
        """A submitted spec as its client wrote it; of one that is longer than ``most`` bytes, a byte more."""

        def read() -> bytes | None:
            pipeline = self.redis.pipeline(transaction=True)
            pipeline.exists(self.keys.spec(ref))
            pipeline.getrange(self.keys.spec(ref), 0, most)
            there, text = answers(pipeline)
            return text if there else None

        return read_untrusted(read)

    def page_bytes(self, ref: RunRef, numbers: Sequence[int]) -> list[int]:
        """How long these pages of rows are, compressed; 0 where there is none."""

        def read() -> list[int]:
            pipeline = self.redis.pipeline(transaction=False)
            for number in numbers:
                pipeline.hstrlen(self.keys.rows(ref), str(number))
            return [int(size) for size in answers(pipeline)]

        return read_untrusted(read) or [0] * len(numbers)

    def plan(self, ref: RunRef) -> Plan | None:
        """An admitted run's plan."""
        text = self.redis.get(self.keys.plan(ref))
        return Plan.read(text) if text else None

    def cursor(self, ref: RunRef) -> int:
        """Items handed out so far."""
        return int(self.redis.hget(self.keys.state(ref), "cursor") or 0)

    def extent(self, ref: RunRef) -> Extent:
        """How far a run has come."""
        fields = ("cursor", "rows", "open", "started_ms", "paused_ms")
        cursor, rows, still_open, started, paused = self.redis.hmget(self.keys.state(ref), *fields)
        return Extent(
            int(cursor or 0), int(rows or 0), still_open == b"1", int(started or 0), paused is not None
        )

    def page(self, ref: RunRef, number: int) -> bytes | None:
        """One compressed page of rows."""
        blob: bytes | None = read_untrusted(lambda: self.redis.hget(self.keys.rows(ref), str(number)))
        return blob

    def origins(self, ref: RunRef, number: int) -> bytes | None:
        """Where one page's rows were in the run that this one goes on from: a JSON list of row numbers."""
        text: bytes | None = read_untrusted(
            lambda: self.redis.hget(self.keys.rows(ref), f"{ORIGINS}{number}")
        )
        return text

    def seats(self, ref: RunRef, number: int) -> bytes | None:
        """Where the rows of one page belong: `fairlane.sessions.decode_seats`."""
        blob: bytes | None = read_untrusted(lambda: self.redis.hget(self.keys.rows(ref), seats_field(number)))
        return blob

    def results(self, ref: RunRef, jobs: Iterable[int]) -> list[bytes | None]:
        """Stored results, ``None`` for jobs that have none."""
        found: list[bytes | None] = self.redis.hmget(self.keys.results(ref), [str(job) for job in jobs])
        return found

    def memory(self, ref: RunRef) -> dict[bytes, bytes]:
        """What the run's later items read of earlier ones."""
        found: dict[bytes, bytes] = self.redis.hgetall(self.keys.memory(ref))
        return found

    def turn(self, ref: RunRef) -> tuple[int, int]:
        """Items handed out, and items that are over."""
        handed, done = self.redis.hmget(self.keys.state(ref), "handed", "items_done")
        return int(handed or 0), int(done or 0)

    def lanes(self, ref: RunRef) -> set[str]:
        """Lanes on which the run has had jobs."""
        return {lane.decode() for lane in self.redis.smembers(self.keys.run_lanes(ref))}

    def queued(self, ref: RunRef, lanes: Sequence[str]) -> dict[str, int]:
        """Jobs queued on each of ``lanes``."""
        pipeline = self.redis.pipeline(transaction=False)
        for lane in lanes:
            pipeline.llen(self.keys.hot(ref, lane))
            pipeline.llen(self.keys.fresh(ref, lane))
        lengths = pipeline.execute()
        return {lane: lengths[2 * i] + lengths[2 * i + 1] for i, lane in enumerate(lanes)}

    def append(self, ref: RunRef, number: int, page: bytes) -> None:
        """Write a page of rows that the scheduler has read itself."""
        self.redis.hset(self.keys.rows(ref), str(number), page)

    def drop_page(self, ref: RunRef, number: int) -> None:
        """Forget a page of rows that can be read again where it came from."""
        self.redis.hdel(self.keys.rows(ref), str(number))

    def over_within(self, ref: RunRef, first_byte: int, last_byte: int) -> int:
        """How many jobs have their record, of eight a byte."""
        return int(self.redis.bitcount(self.keys.done(ref), first_byte, last_byte))

    def delayed(self, upto_ms: int, limit: int = 500) -> list[Delayed]:
        """Jobs whose back-off ends by ``upto_ms``, soonest first."""
        found = []
        for raw in self.redis.zrangebyscore(self.keys.delayed, "-inf", upto_ms, start=0, num=limit):
            member = raw.decode()
            ref, entry, lane = member.split("|", 2)
            found.append(Delayed(member, RunRef.parse(ref), entry, lane))
        return found

    def next_due_ms(self) -> int | None:
        """When the next back-off ends."""
        first = self.redis.zrange(self.keys.delayed, 0, 0, withscores=True)
        return int(first[0][1]) if first else None
