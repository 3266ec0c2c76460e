"""A key that may change while a worker runs: read again when it changes, when it ends, and at a 401."""

import asyncio
import re
from collections import deque

import httpx

from fairlane.config.connections.connection import Connection
from fairlane.core.clock import Clock
from fairlane.core.events import Event
from fairlane.core.redaction import Secrets
from fairlane.telemetry.logs import get_logger
from fairlane_workers.providers.auth.authorizer import Authorizer, CredentialError
from fairlane_workers.providers.auth.key_sources import KeyCommand, KeyFile, KeySource
from fairlane_workers.transport.pause import Pause, sleep

log = get_logger("credentials")

LOOK_MS = 1_000
"""How often a file is looked at, and how long calls fail without a key before the next try."""

FAILED_MS = 5_000
"""How long after a failure a command is run again, and the least time between two runs of it."""

KEPT = 2
"""How many keys are masked in any spelling and in part: the latest, and the one that calls in flight may
carry. A token of two thousand characters costs 23 MiB for that, and a second of a thread."""

MOST_UNPROVEN = 2
"""How many new keys in a row may each be refused at no cost to their calls."""

_JWT = re.compile(r"eyJ[\w-]*\.[\w-]+\.[\w-]*")
"""A token that differs for each process and ends within hours (RFC 7519): a bad fingerprint of a key."""


class RotatingKey:
    """The key of one connection; all methods are called on one event loop."""

    def __init__(
        self, connection: str, source: KeySource, identity: str, clock: Clock, pause: Pause = sleep
    ) -> None:
        """``identity`` is fingerprinted in place of a key that changes with each process and hour."""
        self._connection, self._source, self._clock, self._pause = connection, source, clock, pause
        self._identity, self._lasts = identity, isinstance(source, KeyFile)
        self.number = 0
        """How many keys there have been; 0: none yet."""
        self.latest = deque[str](maxlen=KEPT)
        """The keys that a call in flight may carry, the newest first."""
        self._parts = deque[Secrets](maxlen=KEPT)
        self.former: tuple[str, ...] = ()
        """Keys before the latest ``KEPT``, which are masked as a whole."""
        self.masks = Secrets()
        """Masks every key that there has been."""
        self._failed: CredentialError | None = None
        self._look_ms = self._read_ms = 0
        self._unproven = 0
        self.renewals = 0
        """How many keys have replaced one that was denied for good: lanes that it parked may be opened."""
        self._denied = 0
        """The number of the latest key that was denied for good; 0: none was."""
        self._retry_ms = FAILED_MS
        """How long after a run a command is run again while its key is refused; twice as long each time."""
        self._looking: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._asked = 0
        """The number of the key because of which ``_asking`` asks."""

    @property
    def fingerprinted(self) -> str | None:
        """The text whose fingerprint distinguishes this key from others; ``None`` without a key."""
        if not self.latest:
            return None
        return self.latest[0] if self._lasts and not _JWT.fullmatch(self.latest[0]) else self._identity

    async def current(self) -> str:
        """The key. It is looked at first, if that is due: only a call without any key waits for that.

        Raises `CredentialError` if no key could be read.
        """
        looking = self.look_if_due()
        if looking is not None and not self.latest:
            await asyncio.shield(looking)  # a cancelled call does not stop it for others
        if not self.latest:
            failed = self._failed or CredentialError("there is no key yet")
            raise CredentialError(str(failed)) from failed
        return self.latest[0]

    async def look(self) -> None:
        """Look at the key, if that is due."""
        looking = self.look_if_due()
        if looking is not None:
            await asyncio.shield(looking)

    def look_if_due(self) -> asyncio.Task[None] | None:
        """The present look, or one that is due; ``None`` if neither. Callers must not cancel it."""
        if self._looking is not None and not self._looking.done():
            return self._looking
        return self._look_now(anew=False) if self._now_ms >= self._look_ms else None

    async def refused(self, number: int) -> bool:
        """Whether the refused key, the ``number``-th, has been replaced; it is read again to find that out.

        True means that the next call has another key. False after several refused keys in a row. If the
        command ran less than `FAILED_MS` ago, all calls of a key wait together for its next run.
        """
        if self._looking is not None and not self._looking.done():
            await asyncio.shield(self._looking)  # it may have begun before the key was replaced
        if number == self.number and self._may_ask:
            await asyncio.wait({self._asked_again(number)})  # a cancelled call does not stop it for others
        replaced = number != self.number and self._unproven <= MOST_UNPROVEN
        if not replaced:
            self._deny(number)
        return replaced

    def accepted(self, number: int) -> None:
        """The service has taken the ``number``-th key."""
        if number == self.number:
            self._unproven = self._denied = 0
            self._retry_ms = FAILED_MS

    async def aclose(self) -> None:
        """End what runs."""
        if self._asking is not None:
            self._asking.cancel()
        await asyncio.to_thread(self._source.close)
        running = [each for each in (self._asking, self._looking) if each is not None]
        await asyncio.gather(*running, return_exceptions=True)

    @property
    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    @property
    def _may_ask(self) -> bool:
        """Whether a 401 has the key read again. It has a command run once for each key, and then as often as
        the time between two runs allows; not while new keys are refused in a row.
        """
        if self._lasts:
            return True
        asked = self._denied == self.number
        return self._unproven <= MOST_UNPROVEN and (not asked or self._now_ms >= self._read_ms + FAILED_MS)

    def _asked_again(self, number: int) -> asyncio.Task[None]:
        """The task that reads the key again because of its refusal: one for all calls that carried it."""
        if self._asking is not None and self._asked != number:
            self._asking.cancel()  # that key has been replaced
        if self._asking is None or self._asking.done() or self._asked != number:
            self._asking, self._asked = asyncio.create_task(self._ask_again(number)), number
        return self._asking

    async def _ask_again(self, number: int) -> None:
        """Read the key again; a command once `FAILED_MS` have passed since its last run."""
        left_ms = 0 if self._lasts else self._read_ms + FAILED_MS - self._now_ms
        if left_ms > 0:
            await self._pause(left_ms / 1000)
        if number == self.number:
            await asyncio.wait({self._look_now(anew=True)})

    def _deny(self, number: int) -> None:
        """Note that the ``number``-th key is denied for good. Another key is soon looked for."""
        if number <= self._denied:
            return
        self._denied = number
        if number == self.number:
            self._look_ms = min(self._look_ms, self._now_ms + self._next_retry_ms())
        else:
            self.renewals += 1

    def _next_retry_ms(self) -> int:
        """How long the next run of a command waits whose key is refused."""
        found, self._retry_ms = self._retry_ms, self._retry_ms * 2
        return found

    def _look_now(self, *, anew: bool) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._read(anew=anew))
            self._looking.add_done_callback(self._retrieve)
        return self._looking

    def _retrieve(self, ended: asyncio.Task[None]) -> None:
        """Log what no call may wait for, without its words, which may quote the key."""
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            words = f"the key could not be read: {type(error).__name__}"
            log.warning(Event.CREDENTIAL_UNREADABLE, connection=self._connection, error=words)
            if self.latest:  # without a key, each call looks anew
                self._look_ms = self._now_ms + LOOK_MS

    async def _read(self, *, anew: bool) -> None:
        try:
            found = await asyncio.to_thread(self._source.read, anew=anew)
        except CredentialError as problem:
            self._fail(problem)
            return
        self._read_ms = self._now_ms
        good_s = None if found is None else found.good_s
        self._look_ms = self._read_ms + (LOOK_MS if good_s is None else max(round(good_s * 1000), LOOK_MS))
        if found is not None:
            self._failed = None
            if not self.latest or found.text != self.latest[0]:
                await self._take(found.text)
            elif self._denied == self.number:
                self._look_ms = min(self._look_ms, self._read_ms + self._next_retry_ms())

    def _fail(self, problem: CredentialError) -> None:
        """Keep the present key: a file may be missing while it is replaced."""
        if str(problem) != str(self._failed):
            log.warning(Event.CREDENTIAL_UNREADABLE, connection=self._connection, error=str(problem))
        self._failed, self._read_ms = problem.with_traceback(None), self._now_ms
        self._look_ms = self._read_ms + (LOOK_MS if self._lasts else FAILED_MS)

    async def _take(self, key: str) -> None:
        """Use another key from now on. It is masked before any call carries it, by work of a thread."""
        former = self.former
        if len(self.latest) == KEPT and self.latest[-1] not in former:
            former = (*former, self.latest[-1])
        self._parts.appendleft(await asyncio.to_thread(Secrets, (key,)))
        self.masks = await asyncio.to_thread(Secrets.joined, [*self._parts, Secrets(also=former)])
        self.former = former
        self.latest.appendleft(key)
        self.renewals += self._denied == self.number > 0
        self.number += 1
        self._unproven += 1


class RotatingHeader(Authorizer):
    """``header: <prefix><key>`` with a key that may change."""

    def __init__(self, header: str, key: RotatingKey, prefix: str = "") -> None:
        self._header, self._key, self._prefix = header, key, prefix

    @property
    def secrets(self) -> Secrets:
        """See `Authorizer.secrets`."""
        return self._key.masks

    @property
    def mark(self) -> int:
        """See `Authorizer.mark`."""
        return self._key.number

    async def sign(
        self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes
    ) -> httpx.Headers:
        """See `Authorizer.sign`."""
        key = await self._key.current()
        signed = headers.copy()
        signed[self._header] = self._prefix + key
        return signed

    def accept(self, mark: int) -> None:
        """See `Authorizer.accept`."""
        self._key.accepted(mark)

    async def replaced(self, mark: int, now_ms: int) -> bool:
        """See `Authorizer.replaced`."""
        return await self._key.refused(mark)

    async def aclose(self) -> None:
        """See `Authorizer.aclose`."""
        await self._key.aclose()


def rotating_key(name: str, connection: Connection, clock: Clock) -> RotatingKey | None:
    """The key of the connection ``name``, if it is in a file or a command's output."""
    place = connection.key_place
    if place is None or not place.changes:
        return None
    source: KeySource
    if connection.api_key_file is not None:
        source = KeyFile(connection.api_key_file)
    else:
        source = KeyCommand(connection.api_key_command, connection.api_key_seconds)
    return RotatingKey(name, source, place.identity, clock)
