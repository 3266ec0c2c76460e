"""Makes calls; streams answers if a client listens or the call may take long. Notes prompts of which a server
seems to have read only a part.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redis.exceptions import RedisError

from fairlane.config.connections.connection import Connection
from fairlane.config.settings import Settings
from fairlane.core.clock import Clock
from fairlane.core.errors import TemplateError
from fairlane.core.lru import Lru
from fairlane.model.job import Attempt
from fairlane.model.lane import split_model
from fairlane.model.outcome import (
    Aborted,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    PermanentFailure,
    ServerError,
    Success,
    TimedOut,
    UnsupportedParameter,
)
from fairlane.model.record import PROMPT_CUT
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from fairlane.store.keys import Keys
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.execution.held import HeldAttempt
from fairlane_workers.execution.inputs import JobInputs
from fairlane_workers.providers.contract import Provider, Request

LOOK_AGAIN_MS = 1000  # between looks for a run's listeners in Redis: a new one misses at most one second
RUNS_KEPT = 1024

CUT_MS = 60_000
"""Silence after which a proxy may cut a connection (nginx's ``proxy_read_timeout`` and AWS's load balancers:
60 s), until one is cut sooner. A call that took a `QUARTER` of that may take all of it the next time."""

QUARTER = 0.25

SILENCE_MS = 1000
"""A connection that breaks sooner broke for another reason: nobody configures a shorter silence."""

CALLS_KEPT, MODELS_KEPT = 20, 1024

CONTROLS_KEPT = 128
"""Combinations of team, lane and model whose control is kept. A kept request keeps its row in memory."""

CONTROL_CHARS = 16_384
"""Longest request that is kept as a control, so that controls are cheap."""

CHARS_A_TOKEN = 7
"""More characters than a token of prose has: English has 4 to 5 in today's tokenizers, others fewer."""

LEAST_COUNTED = 256
"""Lower token counts are ignored: no context is so short, but some gateways always report 0, 1 or 10."""

SAMPLES, SAMPLE_CHARS = 16, 512

_REPEATED = re.compile(r"(.{1,8}?)\1{2,}", re.DOTALL)
"""Repetitions such as blanks and rules: one token may have dozens of such characters."""


class Calls:
    """Makes the calls of attempts."""

    def __init__(self, settings: Settings, providers: Mapping[str, Provider], chunks: Chunks) -> None:
        """``providers``: by connection; connections outside ``settings.connections`` never stream."""
        self._connections, self._providers = settings.connections, providers
        self._streaming = Streaming(chunks)
        self._max_response_bytes = settings.worker.max_response_bytes
        self._controls = Controls()

    def note(self, held: HeldAttempt, inputs: JobInputs, outcome: Outcome, took_ms: int) -> None:
        """Note that an attempt's call has ended, ``took_ms`` after its request left."""
        self._streaming.note(inputs.call.model, outcome, took_ms, streamed=held.streams)
        if isinstance(outcome, Success) and held.handle is None:
            self._controls.keep(held.attempt, inputs, outcome.usage)

    def keep_control(self, held: HeldAttempt, inputs: JobInputs, usage: Usage) -> None:
        """Keep an answered call as a possible control of the attempt's lane; ``usage``: its tokens."""
        self._controls.keep(held.attempt, inputs, usage)

    def control_of(self, held: HeldAttempt) -> JobInputs | None:
        """A call that the attempt's lane has answered its team before; ``None`` if none is kept."""
        return None if held.handle is not None else self._controls.of(held.attempt, held.inputs)

    async def make(
        self, held: HeldAttempt, inputs: JobInputs, on_pending: Callable[[str], Coroutine[Any, Any, None]]
    ) -> Outcome:
        """Make a job's call, or a control in its place.

        ``on_pending`` gets the handle of a call that its provider works on.
        """
        if inputs.problem is not None:
            return PermanentFailure(inputs.problem)
        try:
            call = inputs.call
            connection, name = split_model(call.model)
        except (TemplateError, ValueError) as error:
            return PermanentFailure(str(error))
        provider, configured = self._providers.get(connection), self._connections.get(connection)
        if provider is None:
            return Aborted(f"this worker has no connection {connection!r}")
        listener, asked = None, False
        if configured is not None and call.inputs is None:
            attempt = held.attempt if inputs.evaluation is None and inputs is held.inputs else None
            held.streams, listener = await self._streaming.of(attempt, call.model, configured)
            asked = configured.stream is True
        request = Request(
            model=name,
            messages=call.messages,
            params=dict(call.params),
            stream=held.streams,
            timeout_s=inputs.spec.timeout,
            max_response_bytes=self._max_response_bytes,
            arguments=call.arguments,
            inputs=call.inputs,
            lane=held.attempt.lane,
            handle=held.handle,
            on_pending=on_pending,
            withdrawn=lambda: held.withdrawn,
            leave=bool if held.departure is None else held.departure.leave,
            optional=call.optional if asked else call.optional | {"stream"},
        )
        called = provider.call(request) if listener is None else _streamed(provider, request, listener)
        return with_note(await called, call.messages)


class Controls:
    """The cheapest answered request of each team, lane and model, to be sent again as a control.

    A control shows whether a lane rejects all calls, or only certain rows. Calls of functions are not kept,
    as they may have side effects.
    """

    def __init__(self) -> None:
        self._kept: Lru[tuple[str, str, str], tuple[int, JobInputs]] = Lru(CONTROLS_KEPT)

    def keep(self, attempt: Attempt, inputs: JobInputs, usage: Usage) -> None:
        """Keep an answered call if it is short, and the cheapest so far."""
        call, key = inputs.call, _control_key(attempt, inputs)
        if call.arguments is not None:
            return
        cost = (usage.input_tokens or 0) + (usage.output_tokens or 0)
        kept = self._kept.get(key)
        texts = _texts(call.messages) if call.inputs is None else call.inputs
        if (kept is None or cost < kept[0]) and sum(map(len, texts)) <= CONTROL_CHARS:
            self._kept.put(key, (cost, replace(inputs, rendered=call, output=None, memory=None)))

    def of(self, attempt: Attempt, inputs: JobInputs | None) -> JobInputs | None:
        """The request to send in place of the attempt's own; ``None`` if none is kept."""
        if inputs is None or inputs.problem is not None:
            return None
        try:
            kept = self._kept.get(_control_key(attempt, inputs))
        except (TemplateError, ValueError):  # its own call cannot be made, and shows that
            return None
        return None if kept is None else kept[1]


def _control_key(attempt: Attempt, inputs: JobInputs) -> tuple[str, str, str]:
    return attempt.team, attempt.lane, inputs.call.model


async def _streamed(provider: Provider, request: Request, listener: AttemptStream) -> Outcome:
    """Call, and publish the pieces of the output; without a success they are void."""
    try:
        outcome = await provider.call(request, listener)
    except BaseException:
        listener.void()
        raise
    if not isinstance(outcome, Success):
        listener.void()
    return outcome


class Chunks:
    """Publishes for all attempts of a worker. No call in flight waits for it, or for a Redis that is away."""

    def __init__(self, batcher: Batcher, keys: Keys, clock: Clock) -> None:
        self._batcher, self._keys, self._clock = batcher, keys, clock
        self._audiences: Lru[RunRef, _Audience] = Lru(RUNS_KEPT)

    async def listener(self, attempt: Attempt) -> AttemptStream:
        """The function to call with each piece of an attempt's output."""
        ref = RunRef(attempt.team, attempt.run)
        channel, audience = self._keys.chunks(ref), self._audience(ref)
        question = audience.look()
        if not question.done():
            await asyncio.shield(question)  # other attempts wait for the same reply
        return AttemptStream(self._batcher, channel, attempt, audience)

    def _audience(self, ref: RunRef) -> _Audience:
        channel = self._keys.chunks(ref)
        return self._audiences.get_or_make(ref, lambda: _Audience(lambda: self._count(channel), self._clock))

    async def _count(self, channel: str) -> int:
        answer = await self._batcher.send(("PUBSUB NUMSUB", channel))
        return int(answer[0][1] if isinstance(answer[0], tuple | list) else answer[1])


class Streaming:
    """Decides which calls stream, by their listeners, their model's latency, and when calls were cut."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._took: Lru[str, deque[int]] = Lru(MODELS_KEPT)
        self._cut: Lru[str, int] = Lru(MODELS_KEPT)

    def note(self, model: str, outcome: Outcome, took_ms: int, *, streamed: bool) -> None:
        """A call to ``model`` has ended; ``took_ms`` since its request left.

        If a first call fails, the next does not stream: not every server can send a stream.
        """
        took = self._took.get_or_make(model, lambda: deque(maxlen=CALLS_KEPT))
        match outcome:
            case NetworkFailure() | TimedOut(deadline_ms=None) if not streamed and took_ms >= SILENCE_MS:
                self._cut.put(model, min(took_ms, CUT_MS))
                took.append(took_ms)
            case Success() | TimedOut():
                took.append(took_ms)
            case (
                NetworkFailure()
                | ServerError()
                | InvalidResponse()
                | UnsupportedParameter(failure=ServerError() | InvalidResponse())
            ) if not took:
                took.append(took_ms)

    async def of(
        self, attempt: Attempt | None, model: str, connection: Connection
    ) -> tuple[bool, AttemptStream | None]:
        """Whether a call is to stream, and what publishes its pieces; without an ``attempt`` nothing does."""
        if connection.stream is False:
            return False, None
        listener = None if attempt is None else await self._chunks.listener(attempt)
        heard = listener is not None and listener.wanted
        streams = connection.stream is True or heard or self._may_take_long(model)
        return streams, listener if streams else None

    def _may_take_long(self, model: str) -> bool:
        took, cut_ms = self._took.get(model), self._cut.get(model) or CUT_MS
        return not took or max(took) >= cut_ms * QUARTER


class AttemptStream:
    """Publishes what one attempt streams; call it with each piece."""

    def __init__(self, batcher: Batcher, channel: str, attempt: Attempt, audience: _Audience) -> None:
        self._batcher, self._channel, self._audience = batcher, channel, audience
        self._attempt = {"job": attempt.job, "number": attempt.number}
        self._heard = False

    @property
    def wanted(self) -> bool:
        """Whether a client listens to the run now."""
        return self._audience.present

    async def __call__(self, text: str) -> None:
        """Publish a piece if a client listens."""
        self._audience.look()
        if self._audience.present:
            self._heard = True
            self._publish({"text": text})

    def void(self) -> None:
        """Tell listeners to drop the pieces so far, if there are any."""
        if self._heard:
            self._publish({"void": True})

    def _publish(self, fields: dict[str, object]) -> None:
        self._batcher.offer(("PUBLISH", self._channel, json.dumps(self._attempt | fields)))


class _Audience:
    """Whether a client listens to a run. Redis is asked at most once a second, for all attempts together."""

    def __init__(self, count: Callable[[], Coroutine[Any, Any, int]], clock: Clock) -> None:
        self._count, self._clock = count, clock
        self._question: asyncio.Task[None] | None = None
        self._asked_ms = 0
        self.present = False

    def look(self) -> asyncio.Task[None]:
        """Ask Redis, if it is time; `present` is up to date once the task is done."""
        now, question = self._clock.monotonic_ms(), self._question
        if question is None or (question.done() and now - self._asked_ms >= LOOK_AGAIN_MS):
            self._asked_ms = now
            question = self._question = asyncio.ensure_future(self._ask())
        return question

    async def _ask(self) -> None:
        with suppress(RedisError):
            self.present = await self._count() > 0


def with_note(outcome: Outcome, messages: Sequence[Mapping[str, Any]]) -> Outcome:
    """The outcome, with a note where the server counted far fewer tokens than the prompt has.

    Ollama silently cuts a prompt to its ``num_ctx``; its token count is the only sign.
    """
    if not isinstance(outcome, Success) or (outcome.usage.input_tokens or 0) < LEAST_COUNTED:
        return outcome
    counted = (outcome.usage.input_tokens or 0) + (outcome.usage.cached_tokens or 0)
    most = CHARS_A_TOKEN * counted
    texts = list(_texts(messages))
    chars = sum(map(len, texts))
    if chars <= most or chars * _share_unrepeated(texts) <= most:
        return outcome
    note = f"{PROMPT_CUT}: it counted {counted:,} tokens for {chars:,} characters"
    return replace(outcome, notes=(*outcome.notes, note))


def _share_unrepeated(texts: Sequence[str]) -> float:
    """The share of characters without repetitions, by samples: reading all takes a second a megabyte."""
    whole = "".join(texts)
    step = max(1, len(whole) // SAMPLES)
    samples = [whole[at : at + SAMPLE_CHARS] for at in range(0, len(whole), step)]
    return sum(len(_REPEATED.sub(r"\1", each)) for each in samples) / sum(map(len, samples))


def _texts(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The texts of a chat, without images and files."""
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                yield text
