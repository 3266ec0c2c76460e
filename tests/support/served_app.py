"""A team's own Celery application, whose worker serves the lane ``crm-api``."""

from __future__ import annotations

import os
import time

from celery import Celery
from redis import Redis

from fairlane.celery import limited
from fairlane.config.environment import process_environment
from fairlane.config.loader import load_settings
from fairlane_workers.bridge import serve

BUDGET_LANE = "crm-api"
HOLD_S = 0.05

app = Celery(
    "crm",
    broker=process_environment().get("CRM_BROKER", "memory://"),
    backend=process_environment().get("CRM_RESULTS"),
    set_as_current=False,
)
app.conf.broker_connection_retry_on_startup = True
serve(app, lanes=[BUDGET_LANE], slots=4)


def books() -> Redis:
    """The Redis key to which tasks write what they did."""
    return Redis.from_url(load_settings().redis.url)


@app.task(shared=False, name="crm.fetch")
def fetch(number: int, *, of: str) -> dict[str, object]:
    """Records which process made the call, and how many calls were in flight."""
    with books() as redis:
        now = redis.incr(f"crm:{of}:now")
        redis.sadd(f"crm:{of}:pids", os.getpid())
        redis.zadd(f"crm:{of}:together", {str(number): now})
        time.sleep(HOLD_S)  # noqa: TID251 - a slow task, on its own thread
        redis.decr(f"crm:{of}:now")
    return {"number": number, "of": of}


@limited(app, lane=BUDGET_LANE)
def double(number: int) -> int:
    """A task whose `delay` goes through Fairlane."""
    return 2 * number


@app.task(shared=False, name="crm.fail")
def fail(why: str) -> None:
    """A task that raises."""
    raise ValueError(why)


refuse = limited(app, lane=BUDGET_LANE)(fail)


@app.task(shared=False, name="crm.total")
def total(numbers: list[int]) -> int:
    """A task of Celery alone."""
    return sum(numbers)


@app.task(shared=False, name="crm.note")
def note(request: object, error: BaseException, _trace: object, key: str) -> None:
    """An errback: keeps what it was told."""
    with books() as redis:
        redis.set(key, f"{type(error).__name__}: {error}")
