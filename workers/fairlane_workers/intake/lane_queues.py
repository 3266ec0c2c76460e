"""Consumes the Celery queues of lanes, as lanes appear and again after every reconnection."""

import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Protocol

from celery import bootsteps
from celery.exceptions import CPendingDeprecationWarning
from celery.worker.consumer import Consumer
from kombu.message import Message
from redis.exceptions import RedisError

from fairlane.broker.app import queue_of
from fairlane.broker.bundle import unbundled
from fairlane.core.events import Event
from fairlane.model.lane import QUEUE_PREFIX, queue_name
from fairlane.store.connection.server_states import Refusal
from fairlane.store.read.mistyped import mistyped_of_broker, named
from fairlane.telemetry.logs import get_logger

log = get_logger("consumer")

CONSUMER = "fairlane_workers.intake.lane_queues:LaneWorkerConsumer"
"""The value of Celery's ``worker_consumer``."""

POLL_S = 0.2
"""How long one blocking pop on Redis waits. It watches the queues that were consumed when it began."""

SETTLED_POLL_S = 1.0
"""The same once the lanes have not changed for `SETTLED_S`: polls are most of what an idle worker costs."""

SETTLED_S = 20.0

LOOK_S = 0.02  # between checks whether the next pop has begun
OLDEST_POLL_S = 1.1  # longest pop of a kombu that does not record when it began

REFUSED_S = 1.0
"""How long a worker waits before it connects again to a broker that takes no writes."""

RECONNECT_S = 2.0
"""The longest that a worker waits before it tries its broker again."""

_DELAYS = "celery.worker.consumer.delayed_delivery:DelayedDelivery"


LOOP_LOOK_S = 1.0
"""How often the consumer's thread looks whether the event loop turns."""

STANDING_LOOKS = 2
"""Checks in a row that must find the loop standing: after a suspension, the first may come too soon."""


class Loop(Protocol):
    """The event loop that starts attempts, as the consumer's thread sees it."""

    def stands_still(self) -> bool:
        """Whether it has not turned for so long that the scheduler counts this worker as lost."""
        ...

    def put_back(self) -> None:
        """Requeue the messages that wait for it."""
        ...


class LaneQueues:
    """The lanes whose queues this worker consumes. Any thread may change them.

    Consumes none while the event loop does not turn: the messages would not be started.
    """

    def __init__(self, on_change: Callable[[frozenset[str]], None], loop: Loop | None = None) -> None:
        self._on_change, self._loop = on_change, loop
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._wanted: set[str] = set()
        self.drained = False
        """Whether the worker was asked to take no new calls."""
        self._standing_looks = 0  # in a row at which the loop stood still
        self.consumed: frozenset[str] = frozenset()
        """Lanes whose queues are being consumed."""
        self._added: frozenset[str] = frozenset()

    @property
    def listening(self) -> bool:
        """Whether a consumer takes the lanes' messages."""
        return self._consumer is not None and not self._held

    @property
    def _held(self) -> bool:
        return self.drained or self._standing_looks >= STANDING_LOOKS

    def want_only(self, lanes: list[str]) -> None:
        """Consume the queues of these lanes, and of no others."""
        with self._lock:
            left, self._wanted = not self._wanted.issubset(lanes), set(lanes)
            behind = not self._held and (left or not self.consumed.issuperset(lanes))
            consumer = self._consumer
        if behind and consumer is not None:
            consumer.call_soon(self._apply)

    def hold(self, held: bool) -> None:
        """Consume no lane's queue while ``held``, so that other workers take those messages."""
        with self._lock:
            changed, self.drained = held != self.drained, held
            consumer = self._consumer
        if changed and consumer is not None:
            consumer.call_soon(self._apply)

    def attach(self, consumer: Any) -> None:
        """Let a started consumer consume every wanted queue."""
        with self._lock:
            self._consumer, self.consumed, self._added = consumer, frozenset(), frozenset()
        channel = consumer.task_consumer.channel
        self._poll_often(consumer)
        if getattr(channel, "do_restore", False):
            # Leases recover the messages of a lost connection; the broker would send them a second time.
            channel.do_restore = False
        self._leave_unwanted(consumer)
        # Not at once: RabbitMQ would deliver before Celery has set its message handler.
        consumer.call_soon(self._apply)
        if self._loop is not None:
            consumer.timer.call_after(LOOP_LOOK_S, partial(self._check_loop, consumer, self._loop))

    def _check_loop(self, consumer: Any, loop: Loop) -> None:
        """Stop consuming while the loop stands still, and requeue messages that it has not started."""
        if consumer is not self._consumer:
            return
        consumer.timer.call_after(LOOP_LOOK_S, partial(self._check_loop, consumer, loop))
        standing = loop.stands_still()
        with self._lock:
            before = self._held
            self._standing_looks = self._standing_looks + 1 if standing else 0
            held = self._held
        if held != before:
            log.warning(Event.LOOP_STANDS if held else Event.LOOP_TURNS)
            self._apply()
        if standing and held:
            loop.put_back()

    def _leave_unwanted(self, consumer: Any) -> None:
        """Deselect what was forgotten or held since: Celery consumes all that its last connection did."""
        with self._lock:
            wanted = set() if self._held else {queue_name(lane) for lane in self._wanted}
        selected = [name for name in consumer.app.amqp.queues.consume_from if name.startswith(QUEUE_PREFIX)]
        for name in selected:
            if name not in wanted:
                consumer.cancel_task_queue(name)

    def detach(self) -> None:
        """Report no lane as consumed: the consumer lost its connection or stops."""
        with self._lock:
            self._consumer, self.consumed, self._added = None, frozenset(), frozenset()
        self._on_change(frozenset())

    def _apply(self) -> None:
        with self._lock:
            consumer, wanted = self._consumer, [] if self._held else sorted(self._wanted)
            left = self._added.difference(wanted)
        if consumer is None or consumer.task_consumer is None:
            return
        for lane in sorted(left):
            consumer.cancel_task_queue(queue_name(lane))
        known = consumer.app.amqp.queues
        for lane in wanted:
            queue = queue_name(lane)
            if queue not in known:
                known.add(queue_of(lane))
            if not consumer.task_consumer.consuming_from(queue):
                consumer.add_task_queue(queue)
        if left:
            self._report(self.consumed.intersection(wanted))
        if self._added != frozenset(wanted):
            self._added = frozenset(wanted)
            self._poll_often(consumer)
            self._confirm(consumer, self._added, time.monotonic())

    def _poll_often(self, consumer: Any) -> None:
        """Poll often until the lanes have not changed for a while; only channels of Redis poll."""
        channel, added = consumer.task_consumer.channel, self._added
        if not hasattr(channel, "brpop_timeout"):
            return

        def settle() -> None:
            if consumer is self._consumer and added == self._added:
                channel.brpop_timeout = SETTLED_POLL_S

        channel.brpop_timeout = POLL_S
        consumer.timer.call_after(SETTLED_S, settle)

    def _confirm(self, consumer: Any, added: frozenset[str], since: float) -> None:
        """Report lanes once their messages are taken, so that no permit waits for a poll to end."""
        if consumer is not self._consumer or added is not self._added or consumer.task_consumer is None:
            return
        if _is_polling_since(consumer.task_consumer.channel, since):
            consumer.timer.call_after(LOOK_S, lambda: self._confirm(consumer, added, since))
        else:
            self._report(added)

    def _report(self, consumed: frozenset[str]) -> None:
        if consumed != self.consumed:
            self.consumed = consumed
            self._on_change(consumed)


def _is_polling_since(channel: Any, since: float) -> bool:
    """Whether a pop is under way that began before ``since`` (monotonic, in s). Other brokers have none."""
    if not getattr(channel, "_in_poll", None):
        return False
    began = getattr(channel, "_brpop_sent_at", None)
    return time.monotonic() < since + OLDEST_POLL_S if began is None else began < since


def consumer_step(queues: LaneQueues) -> type:
    """A bootstep that binds ``queues`` to the worker's consumer."""

    class LaneQueuesStep(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = ("celery.worker.consumer.tasks:Tasks",)

        def start(self, parent: Any) -> None:
            queues.attach(parent)

        def stop(self, parent: Any) -> None:
            queues.detach()

    return LaneQueuesStep


def stopping_step(begin_stop: Callable[[], None]) -> type:
    """A bootstep that calls ``begin_stop`` before the pool waits, also if the consumer has failed."""

    class StoppingStep(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = ("celery.worker.components:Pool",)

        def start(self, parent: Any) -> None:
            pass

        def stop(self, parent: Any) -> None:
            begin_stop()

    return StoppingStep


def attempts_of(message: Message) -> list[Message]:
    """A message for each attempt of a message; the message itself if its list of attempts is unreadable."""
    try:
        return unbundled(message)
    except (KeyError, TypeError, ValueError):
        log.exception(Event.MESSAGE_UNREADABLE, id=str(message.headers.get("id"))[:200])
        return [message]


def hurried(connection: Any) -> Any:
    """The connection. It tries an absent broker every `RECONNECT_S`; kombu would wait up to 30 s."""
    connection.ensure_connection = partial(connection.ensure_connection, interval_max=RECONNECT_S)
    return connection


def why_refused(error: RedisError, connection: Any) -> Refusal | None:
    """Why the broker refuses, with its key of a wrong type, if any; ``None`` for any other error."""
    return named(error, lambda: mistyped_of_broker(connection.default_channel.client))


class BrokerRefuses(ConnectionError):
    """The broker answers and takes no writes: a state that ends, as a lost connection does."""


class LaneWorkerConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer, changed to wait while Redis takes no writes, and without delayed delivery.

    A new connection declares its queues. If Redis refuses that, Celery ends the worker, as that is no lost
    connection. Delayed jobs wait in Redis, so no message has a delay; Celery's own consumer declares 28
    exchanges and queues for delays if it finds a quorum queue.
    """

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]
        """The steps of Celery's consumer, less one."""

        default_steps: ClassVar[list[str]] = [
            step for step in Consumer.Blueprint.default_steps if step != _DELAYS
        ]

        def start(self, parent: Any) -> None:
            """Connect and consume until the connection ends; raises `BrokerRefuses`, which Celery retries."""
            try:
                super().start(parent)
            except RedisError as error:
                refused = why_refused(error, parent.connection)
                if refused is None:
                    raise
                raise BrokerRefuses(str(refused)) from error

    def ensure_connected(self, conn: Any) -> Any:
        """See Celery's consumer."""
        return super().ensure_connected(hurried(conn))

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        """See Celery's consumer; each attempt of a message becomes a task of its own."""
        handle = super().create_task_handler(*args, **kwargs)

        def on_task_received(message: Message) -> None:
            for one in attempts_of(message):
                handle(one)

        return on_task_received

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        """See Celery's consumer."""
        if not self._refused(exc):
            super().on_connection_error_before_connected(exc)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """See Celery's consumer."""
        with warnings.catch_warnings():
            # Ignore Celery's setting for messages of a lost connection: leases recover them.
            warnings.simplefilter("ignore", CPendingDeprecationWarning)
            super().on_connection_error_after_connected(exc)
        self._refused(exc)

    def _refused(self, exc: Exception) -> bool:
        """Log that the broker refuses, and wait a little; false for any other error."""
        if not isinstance(exc, BrokerRefuses):
            return False
        log.warning(Event.BROKER_REFUSES, error=str(exc), again_s=REFUSED_S)
        threading.Event().wait(REFUSED_S)
        return True
