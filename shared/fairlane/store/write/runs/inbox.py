"""Requests of clients to the scheduler: one list per team, each entry a small JSON object, hostile input."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis.exceptions import NoPermissionError, OutOfMemoryError

from fairlane.datasets.rows import Page, decode_page, encode_page
from fairlane.model.run import RunRef, RunSpec
from fairlane.store.keys import Stored
from fairlane.store.run_queries import ask_each, read_hostile
from fairlane.store.verbs import script
from fairlane.store.write.runs.run_control import restore_active

UPLOAD_TTL_S = 24 * 3600  # s: an upload that no scheduler admits expires
READ_AT_ONCE = 100
ENTRY_BYTES = 1024  # a longer entry is no request
BY_CHARS = 100  # longest name of a person in a request
SEARCHED_AT_ONCE = 1000
NOTED_AT_ONCE = 64

OVERDUE_MS = 1000
"""Milliseconds after which a waiting client announces its request again: Redis delivers an announcement at
most once, and only to a scheduler that listens."""

SENT_PER_WAITING = 8
"""Sent pages for each page that may wait: longer uploads send more pages together. One request for each page
of short rows would double the time of an upload."""

MOST_WAITING_BYTES = 64 * 1024
"""Most bytes of compressed pages that wait to be sent; a larger page is sent at once."""


RELIEVING = frozenset(("cancel", "pause"))
"""Requests that a client may make while Redis is full."""


class Request(BaseModel):
    """One entry: submit, cancel, pause, resume or extend a run of the team whose inbox it is in.

    To extend: the open run has ``rows`` rows now; ``last``: no more will come. ``by`` is the
    person's name as the client gives it: it is shown to the team, and proves nothing.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    op: Literal["submit", "cancel", "extend", "pause", "resume"]
    run: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    rows: int = Field(default=0, ge=0)
    last: bool = False
    by: str = Field(default="", max_length=BY_CHARS, pattern=r"^[^\x00-\x1f\x7f]*$")


def request_of(entry: bytes) -> Request | None:
    """The request in an entry of an inbox; ``None`` if the entry is invalid."""
    try:
        return Request.model_validate_json(entry)
    except ValidationError:
        return None


def asked_for(op: str, entries: Iterable[bytes]) -> list[str]:
    """Ids of the runs for which entries of an inbox request ``op``, in their order."""
    requests = map(request_of, entries)
    return [request.run for request in requests if request is not None and request.op == op]


class Outbox(Stored):
    """The client's side: uploads a run's rows and sends requests."""

    def upload(self, ref: RunRef, pages: Iterable[list[dict[str, Any]]]) -> int:
        """Write pages of rows as they come; returns the number of rows. Leaves nothing behind if it fails.

        A page that is full with fewer rows than earlier ones makes them be cut to its size.
        """
        key, rows, sent, number, full = self._keys.rows(ref), 0, 0, 0, None
        waiting, waiting_bytes = dict[str, bytes](), 0
        try:
            for page in pages:
                if isinstance(page, Page) and full not in (None, page.full):
                    self._add(key, waiting)
                    by = (full or 1) // (page.full or 1)
                    number = sent = self._cut(key, number, by)
                    waiting, waiting_bytes = {}, 0
                full = page.full if isinstance(page, Page) else None
                encoded = encode_page(page)
                waiting[str(number)] = encoded
                waiting_bytes += len(encoded)
                rows, number = rows + len(page), number + 1
                if len(waiting) > sent // SENT_PER_WAITING or waiting_bytes >= MOST_WAITING_BYTES:
                    self._add(key, waiting)
                    sent, waiting, waiting_bytes = number, {}, 0
            self._add(key, waiting)
        except BaseException:
            self._redis.unlink(key)
            raise
        return rows

    def _cut(self, key: str, pages: int, by: int) -> int:
        """Cut so many full pages of an upload into ``by`` pages each; returns how many there are then.

        It cuts from the last to the first, so that none is overwritten before it is read. All parts of a page
        that Redis has lost are missing.
        """
        for number in reversed(range(pages)):
            stored = self._redis.hget(key, str(number))
            if stored is None:
                self._redis.hdel(key, *(str(number * by + part) for part in range(by)))
                continue
            rows = decode_page(stored)
            size = len(rows) // by
            parts = [rows[first : first + size] for first in range(0, len(rows), size)]
            self._add(key, {str(number * by + part): encode_page(each) for part, each in enumerate(parts)})
        return pages * by

    def note(self, ref: RunRef, fields: Iterable[tuple[str, bytes]]) -> None:
        """Write fields next to the rows of an upload. Leaves nothing behind if it fails."""
        key = self._keys.rows(ref)
        noted = iter(fields)
        try:
            while some := dict(islice(noted, NOTED_AT_ONCE)):
                self._add(key, some)
        except BaseException:
            self._redis.unlink(key)
            raise

    def _add(self, key: str, fields: dict[str, bytes]) -> None:
        """Write fields of an upload, which expires `UPLOAD_TTL_S` after the last write."""
        if not fields:
            return
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hset(key, mapping=fields)
        pipeline.expire(key, UPLOAD_TTL_S)
        pipeline.execute()

    def missing(self, ref: RunRef, pages: int) -> int:
        """How many of an upload's pages are not in Redis."""
        firsts = range(0, pages, SEARCHED_AT_ONCE)
        return sum(
            len(self.absent(ref, range(first, min(first + SEARCHED_AT_ONCE, pages)))) for first in firsts
        )

    def absent(self, ref: RunRef, numbers: Sequence[int]) -> list[int]:
        """Those of these pages of a run that are not in Redis."""
        rows = self._keys.rows(ref)
        found = ask_each(self._redis, numbers, lambda ask, number: ask.hexists(rows, str(number)))
        return [number for number, there in found if not there]

    def append(self, ref: RunRef, number: int, page: bytes) -> None:
        """Write one more page of a run that is open, as `encode_page` makes it."""
        self._redis.hset(self._keys.rows(ref), str(number), page)

    def extend(self, ref: RunRef, rows: int, *, last: bool) -> None:
        """Extend an open run to ``rows`` rows; ``last``: it gets no more."""
        self._ask(ref, "extend", rows=rows, last=last)

    def waiting(self, team: str) -> int:
        """Requests of a team that no scheduler has acted on."""
        return read_hostile(lambda: int(self._redis.llen(self._keys.inbox(team)))) or 0

    def submit(self, spec: RunSpec) -> None:
        """Submit an uploaded run."""
        ref = RunRef(spec.team, spec.run)
        self._redis.set(self._keys.spec(ref), spec.model_dump_json(), ex=UPLOAD_TTL_S)
        self._ask(ref, "submit")

    def announce(self, team: str) -> None:
        """Publish once more that a team's inbox has requests, in case no scheduler received it.

        Does nothing if this user only reads.
        """
        with suppress(NoPermissionError):
            self._redis.publish(self._keys.wake, _announcement(team))

    def discard(self, ref: RunRef) -> None:
        """Delete an upload that was not submitted."""
        self._redis.unlink(self._keys.rows(ref), self._keys.spec(ref))

    def cancel(self, ref: RunRef) -> None:
        """Request to cancel a run."""
        self._ask(ref, "cancel")

    def pause(self, ref: RunRef, by: str) -> None:
        """Request to pause a run; ``by`` says for whom."""
        self._ask(ref, "pause", by=_shown(by))

    def resume(self, ref: RunRef, by: str) -> None:
        """Request to resume a paused run."""
        self._ask(ref, "resume", by=_shown(by))

    def _ask(self, ref: RunRef, op: str, **more: int | bool | str) -> None:
        entry, announced = json.dumps({"op": op, "run": ref.run, **more}), _announcement(ref.team)
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.rpush(self._keys.inbox(ref.team), entry)
        pipeline.publish(self._keys.wake, announced)
        try:
            pipeline.execute()
        except OutOfMemoryError:
            if op not in RELIEVING or not self._send_though_full(ref, entry, announced):
                raise

    def _send_though_full(self, ref: RunRef, entry: str, announced: str) -> bool:
        """Send a request that frees memory; false if this user may run no scripts, or the inbox is full."""
        values = {"entry": entry, "channel": self._keys.wake, "message": announced}
        call = script("inbox_ask").bind({"inbox": self._keys.inbox(ref.team)}, values)
        try:
            return bool(call.run(self._redis))
        except NoPermissionError:
            return False


def _announcement(team: str) -> str:
    """The message that tells the scheduler of a team's request."""
    return f"inbox:{team}"


def _shown(name: str) -> str:
    """The part of a name that a request may carry."""
    return "".join(sign for sign in name if sign.isprintable())[:BY_CHARS]


class Inbox(Stored):
    """The scheduler's side: reads requests, a bounded number a team at a time."""

    def teams(self) -> list[str]:
        """Teams that have ever sent a request, and those that the operator has added."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.smembers(self._keys.teams)
        pipeline.hkeys(self._keys.registry)
        asked, made = pipeline.execute()
        return sorted({team.decode("utf-8", "replace") for team in (*asked, *made)})

    def filled(self, teams: Sequence[str]) -> list[str]:
        """Those of ``teams`` whose inbox is not empty, in that order."""
        found = ask_each(self._redis, teams, lambda ask, team: ask.exists(self._keys.inbox(team)))
        return [team for team, there in found if there]

    def search(self, cursor: int) -> tuple[int, list[str]]:
        """Search a part of all keys for inboxes; returns the next cursor (0: the end) and their teams."""
        pattern = self._keys.inbox("*")
        before, after = pattern.split("*")
        cursor, found = self._redis.scan(cursor, match=pattern, count=SEARCHED_AT_ONCE)
        names = [key.decode("utf-8", "replace").removeprefix(before).removesuffix(after) for key in found]
        return int(cursor), names

    def tidy(self, cursor: int) -> int:
        """Search a part of all keys for keys that teams have written, and let those expire that no run owns.

        Returns the next cursor; 0: the end. The server must know the scripts.
        """
        before, inbox = (part.encode() for part in self._keys.inbox("*").split("*"))
        cursor, found = self._redis.scan(cursor, match=before + b"*", count=SEARCHED_AT_ONCE)
        written = [key for key in found if not key.endswith(inbox)]
        found = ask_each(self._redis, written, lambda ask, key: ask.ttl(key))
        pipeline = self._redis.pipeline(transaction=False)
        for key in [key for key, left in found if left == -1]:
            team, _, rest = key[len(before) :].decode("utf-8", "replace").partition(":")
            state = self._keys.state(RunRef(team, rest.removeprefix("run:").partition(":")[0]))
            keys: dict[str, Any] = {"state": state, "upload": key}
            script("upload_expire").bind(keys, {"ttl_s": UPLOAD_TTL_S}).queue(pipeline)
        pipeline.execute()
        return int(cursor)

    def forget_expired(self, team: str, first: int, count: int) -> tuple[int, int]:
        """Remove expired runs among ``count`` of the team's index from ``first`` on, and add those that have
        not ended to the active ones, which Redis may have lost. Returns how many runs it read and removed.

        A run whose state has a wrong type stays as it is.
        """
        index = self._keys.runs(team)
        runs = [run.decode() for run in self._redis.zrange(index, first, first + count - 1)]
        pipeline = self._redis.pipeline(transaction=False)
        for run in runs:
            pipeline.hget(self._keys.state(RunRef(team, run)), "state")
        found = dict(zip(runs, pipeline.execute(raise_on_error=False), strict=True))
        gone = [run for run, known in found.items() if known is None]
        if gone:
            self._redis.zrem(index, *gone)
            self._redis.srem(self._keys.active, *(str(RunRef(team, run)) for run in gone))
        running = [RunRef(team, run) for run, known in found.items() if known == b"running"]
        restore_active(self._redis, self._keys, running)
        return len(runs), len(gone)

    def remember(self, team: str) -> None:
        """Add the team to those that have sent a request, so that the scheduler looks after its runs."""
        self._redis.sadd(self._keys.teams, team)

    def peek(self, team: str) -> Iterator[Request | None]:
        """The first requests in order; ``None`` for an invalid entry. They stay until `drop`.

        A key that is no list is deleted: it would block all further requests.
        """
        bounds = {"first": 0, "most": READ_AT_ONCE, "entry_bytes": ENTRY_BYTES}
        call = script("inbox_peek").bind({"inbox": self._keys.inbox(team)}, bounds)
        yield from map(request_of, call.run(self._redis))

    def drop(self, team: str, count: int, again: Sequence[Request] = ()) -> None:
        """Forget the first ``count`` entries: they have been acted on. Those of ``again`` come last."""
        pipeline = self._redis.pipeline(transaction=bool(again))
        pipeline.lpop(self._keys.inbox(team), count)
        if again:
            pipeline.rpush(self._keys.inbox(team), *(each.model_dump_json() for each in again))
        pipeline.execute()
