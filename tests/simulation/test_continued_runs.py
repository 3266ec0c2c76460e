"""What a continued run has paid is there for the run that continues it, or that run says why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Run, RunState
from fairlane.apps.archive.mover import RunMover
from fairlane.apps.archive.opening import Archive
from fairlane.client.archive import Moved
from fairlane.model.outcome import Success
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from fairlane_scheduler.upkeep.janitor import EVERY_MS
from tests.support.archives import sqlite_url
from tests.support.direct import DirectRedis
from tests.support.whole import Whole, deployed

HOUR_MS = 3_600_000


@pytest.fixture
def whole(real_redis: DirectRedis) -> Iterator[Whole]:
    with deployed(real_redis, lambda worker, request: (0.2, Success("yes", Usage(10, 5)))) as made:
        yield made


def ended(whole: Whole, rows: int = 5) -> Run:
    run = whole.client("search").submit([{"q": n} for n in range(rows)], "{{ q }}", model="sim:fast")
    assert run.wait(60).state is RunState.COMPLETED
    return run


def ref(run: Run) -> RunRef:
    return RunRef(run.team, run.id)


def test_a_run_that_is_archived_before_its_continuation_is_admitted_is_not_paid_twice(
    whole: Whole, tmp_path: Path
) -> None:
    old, client = ended(whole), whole.client("search")
    whole.schedulers[0].hangs_ms = whole.now_ms + 5000
    new = client.continue_run(old)
    mover = RunMover(client._deployment, Archive(sqlite_url(tmp_path), "test"))
    assert mover.move(ref(old)) is Moved.MOVED
    status = new.wait(60)
    assert (status.state, len(whole.calls)) == (RunState.REFUSED, 5)
    assert "archive" in str(status.reason)


def test_a_run_that_is_continued_while_it_is_copied_stays(whole: Whole, tmp_path: Path) -> None:
    old, client, new = ended(whole), whole.client("search"), list[Run]()

    def meanwhile() -> None:
        if not new:
            new.append(client.continue_run(old))
            new[0].pause()
            whole.run_for(1)

    mover = RunMover(client._deployment, Archive(sqlite_url(tmp_path), "test"), meanwhile)
    assert mover.move(ref(old)) is Moved.NEEDED
    new[0].resume()
    assert new[0].wait(60).state is RunState.COMPLETED
    assert len(whole.calls) == 5


def test_a_run_does_not_expire_while_another_continues_it(whole: Whole) -> None:
    old = ended(whole)
    new = whole.client("search").continue_run(old)
    new.pause()
    key = whole.keys.results(ref(old))
    whole.redis.pexpire(key, 60_000)
    whole.redis.pexpire(whole.keys.state(ref(old)), 60_000)
    whole.run_for(2 * EVERY_MS / 1000)
    assert whole.redis.pttl(key) > HOUR_MS


def test_a_damaged_run_stops_no_other_team_where_a_run_continues_it(whole: Whole) -> None:
    old = ended(whole)
    key = whole.keys.results(ref(old))
    new = whole.client("search").continue_run(old)
    whole.redis.delete(key)
    whole.redis.set(key, "x")
    other = whole.client("ads").submit([{"q": n} for n in range(5)], "{{ q }}", model="sim:fast")
    assert other.wait(20).state is RunState.COMPLETED
    assert len(whole.defects) <= 1
    whole.redis.delete(key)
    assert new.wait(120).state.finished
