"""A copy of an attempt's message, whenever it comes, causes no second call."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from functools import partial

from fairlane.core.events import Event
from fairlane.model.job import Attempt
from fairlane_scheduler.dispatch.publisher import Publisher
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.wait import wait_until

JOBS, AT_ONCE = 40, 8


def publish(deployment: Cluster, attempts: Iterable[Attempt]) -> None:
    """Put messages on the lanes' queues, as nobody but the scheduler should."""
    with closing(Publisher(deployment.settings)) as publisher:
        for attempt in attempts:
            publisher.publish(attempt)
        assert publisher.flush()


def has_completed(deployment: Cluster, model: str, calls: int) -> bool:
    served = deployment.served(model)
    return served.requests > 0 and served.completed >= calls


def test_copies_of_a_message_cause_no_call_whenever_they_arrive(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=300)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"max_concurrency": AT_ONCE})
    run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model=lane)
    moments = (0, JOBS // 4, JOBS // 2, JOBS)
    for completed in moments:
        wait_until(partial(has_completed, deployment, model, completed))
        publish(deployment, (Attempt(run.id, run.team, job, 1, lane) for job in range(JOBS)))
    records = all_succeeded(run)
    copies = len(moments) * JOBS
    wait_until(lambda: len(deployment.logged(Event.STALE_CLAIM, run=run.id)) == copies)
    served = deployment.served(model)
    assert (served.requests, served.duplicates) == (JOBS, 0)
    assert served.peak_in_flight <= AT_ONCE
    assert {record.attempts for record in records} == {1}
    assert run.status().late_reports == 0


def test_a_forged_message_is_dropped(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=10)
    lane = f"sim:{model}"
    run = deployment.client.submit(numbered(3), "question {{ n }}", model=lane)
    all_succeeded(run)
    forged = [Attempt(run.id, run.team, 99, 1, lane), Attempt("none", "nobody", 0, 1, lane)]
    publish(deployment, forged)
    for attempt in forged:
        deployment.wait_logged(Event.STALE_CLAIM, run=attempt.run, job=attempt.job)
    assert deployment.served(model).requests == 3
