"""What clients ask of the scheduler: a list a team, each entry a small JSON object, hostile input."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlane.datasets import encode_page
from fairlane.run import RunSpec
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys, RunRef
from fairlane.store.script import script
from fairlane.store.untrusted import read_untrusted

UPLOAD_TTL_S = 24 * 3600  # an upload that no scheduler ever admits goes away by itself
READ_AT_ONCE = 100
ENTRY_BYTES = 1024  # a longer entry is no request
BY_CHARS = 100  # of a name that a client gives of whoever asks
SEARCHED_AT_ONCE = 1000
NOTED_AT_ONCE = 64


class Request(BaseModel):
    """One entry: submit, cancel, pause, unpause or extend a run of the team whose inbox it lies in.

    To extend: an open run has ``rows`` rows by now, and no more will come after the ``last``. ``by`` is who
    asks, as their client says: it is shown to their team, and proves nothing.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    op: Literal["submit", "cancel", "extend", "pause", "unpause"]
    run: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    rows: int = Field(default=0, ge=0)
    last: bool = False
    by: str = Field(default="", max_length=BY_CHARS, pattern=r"^[^\x00-\x1f\x7f]*$")


class Outbox:
    """The client's side: uploads a run's rows and asks for things."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def upload(self, ref: RunRef, pages: Iterable[list[dict[str, Any]]]) -> int:
        """Write pages of rows as they come; returns the number of rows. Leaves nothing behind if it fails."""
        key, rows = self._keys.rows(ref), 0
        try:
            for number, page in enumerate(pages):
                pipeline = self._redis.pipeline(transaction=True)
                pipeline.hset(key, str(number), encode_page(page))
                pipeline.expire(key, UPLOAD_TTL_S)
                pipeline.execute()
                rows += len(page)
        except BaseException:
            self._redis.unlink(key)
            raise
        return rows

    def note(self, ref: RunRef, fields: Iterable[tuple[str, bytes]]) -> None:
        """Write what is to stand beside the rows of an upload. Leaves nothing behind if it fails."""
        key = self._keys.rows(ref)
        noted = iter(fields)
        try:
            while some := dict(islice(noted, NOTED_AT_ONCE)):
                pipeline = self._redis.pipeline(transaction=True)
                pipeline.hset(key, mapping=some)
                pipeline.expire(key, UPLOAD_TTL_S)
                pipeline.execute()
        except BaseException:
            self._redis.unlink(key)
            raise

    def append(self, ref: RunRef, number: int, page: list[dict[str, Any]]) -> None:
        """Write one more page of a run that is open."""
        self._redis.hset(self._keys.rows(ref), str(number), encode_page(page))

    def extend(self, ref: RunRef, rows: int, *, last: bool) -> None:
        """Tell how many rows an open run has by now, and whether those are all."""
        self._ask(ref, "extend", rows=rows, last=last)

    def submit(self, spec: RunSpec) -> None:
        """Hand an uploaded run over."""
        ref = RunRef(spec.team, spec.run)
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.set(self._keys.spec(ref), spec.model_dump_json(), ex=UPLOAD_TTL_S)
        pipeline.execute()
        self._ask(ref, "submit")

    def discard(self, ref: RunRef) -> None:
        """Take an upload back that was not handed over."""
        self._redis.unlink(self._keys.rows(ref), self._keys.spec(ref))

    def cancel(self, ref: RunRef) -> None:
        """Ask for a run to be cancelled."""
        self._ask(ref, "cancel")

    def pause(self, ref: RunRef, by: str) -> None:
        """Ask for a run to be held back; ``by`` says for whom."""
        self._ask(ref, "pause", by=_shown(by))

    def unpause(self, ref: RunRef, by: str) -> None:
        """Ask for a run that is held back to go on."""
        self._ask(ref, "unpause", by=_shown(by))

    def _ask(self, ref: RunRef, op: str, **more: int | bool | str) -> None:
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.rpush(self._keys.inbox(ref.team), json.dumps({"op": op, "run": ref.run, **more}))
        pipeline.publish(self._keys.wake, f"inbox:{ref.team}")
        pipeline.execute()


def _shown(name: str) -> str:
    """What of a name a request may carry."""
    return "".join(sign for sign in name if sign.isprintable())[:BY_CHARS]


class Inbox:
    """The scheduler's side: reads requests, a bounded number a team at a time."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def teams(self) -> list[str]:
        """Teams that have ever asked for something, and those that the operator has made."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.smembers(self._keys.teams)
        pipeline.hkeys(self._keys.registry)
        asked, made = pipeline.execute()
        return sorted({team.decode("utf-8", "replace") for team in (*asked, *made)})

    def filled(self, teams: Sequence[str]) -> list[str]:
        """Those of ``teams`` whose inbox is not empty, in that order."""
        pipeline = self._redis.pipeline(transaction=False)
        for team in teams:
            pipeline.exists(self._keys.inbox(team))
        return [team for team, there in zip(teams, pipeline.execute(), strict=True) if there]

    def search(self, cursor: int) -> tuple[int, list[str]]:
        """Look through a part of all keys for inboxes; where to go on, and whose they are. 0: the end."""
        pattern = self._keys.inbox("*")
        before, after = pattern.split("*")
        cursor, found = self._redis.scan(cursor, match=pattern, count=SEARCHED_AT_ONCE)
        names = [key.decode("utf-8", "replace").removeprefix(before).removesuffix(after) for key in found]
        return int(cursor), names

    def tidy(self, cursor: int) -> int:
        """Look through a part of all keys for what teams have written: what no run owns and has no end gets
        one. Where to go on; 0: the end. The server must know the scripts.
        """
        before, inbox = (part.encode() for part in self._keys.inbox("*").split("*"))
        cursor, found = self._redis.scan(cursor, match=before + b"*", count=SEARCHED_AT_ONCE)
        written = [key for key in found if not key.endswith(inbox)]
        pipeline = self._redis.pipeline(transaction=False)
        for key in written:
            pipeline.ttl(key)
        endless = [key for key, left in zip(written, pipeline.execute(), strict=True) if left == -1]
        for key in endless:
            team, _, rest = key[len(before) :].decode("utf-8", "replace").partition(":")
            state = self._keys.state(RunRef(team, rest.removeprefix("run:").partition(":")[0]))
            keys: dict[str, Any] = {"state": state, "upload": key}
            script("upload_expire").bind(keys, {"ttl_s": UPLOAD_TTL_S}).queue(pipeline)
        pipeline.execute()
        return int(cursor)

    def remember(self, team: str) -> None:
        """This team has asked for something; its runs are looked after from now on."""
        self._redis.sadd(self._keys.teams, team)

    def peek(self, team: str, first: int = 0) -> Iterator[Request | None]:
        """Requests in order, from the ``first``; ``None`` for an entry that is none. They stay until `drop`.

        What is no list goes away: nothing could ever be asked for again.
        """
        bounds = {"first": first, "most": READ_AT_ONCE, "entry_bytes": ENTRY_BYTES}
        for raw in script("inbox_peek").bind({"inbox": self._keys.inbox(team)}, bounds).run(self._redis):
            try:
                yield Request.model_validate_json(raw)
            except ValidationError:
                yield None

    def waiting(self, team: str) -> int:
        """Entries that lie there."""
        return read_untrusted(lambda: int(self._redis.llen(self._keys.inbox(team)))) or 0

    def cut(self, team: str, count: int) -> None:
        """Forget all but the first ``count`` entries."""
        self._redis.ltrim(self._keys.inbox(team), 0, count - 1)

    def drop(self, team: str, count: int) -> None:
        """Forget the first ``count`` entries: they have been acted on."""
        self._redis.lpop(self._keys.inbox(team), count)
