"""The leader moves runs some time after they finished, one failing run or database holds up nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from fairlane.apps.archive.opening import Archive
from fairlane.cli.operate.doctor import _unmoved
from fairlane.client.deployment import Deployment
from fairlane.config.sections import ArchiveSettings, RedisSettings, SchedulerSettings
from fairlane.config.settings import Settings
from fairlane.core.clock import SystemClock
from fairlane.core.errors import ArchiveUnavailable, ConfigurationError, StoreUnavailable
from fairlane.core.events import Event
from fairlane.model.run import RunRef
from fairlane.store.write.attempts import run_keys
from fairlane_scheduler.monitoring.deployment_metrics import DeploymentMetrics
from fairlane_scheduler.upkeep import archiver as module
from fairlane_scheduler.upkeep.archiver import AGAIN_S, LOOK_EVERY_S, Archiver, Stopping, start_archiver
from tests.support.archives import ArchivedStage, sqlite_url
from tests.support.registries import ScheduledMetrics
from tests.support.wait import wait_until


@pytest.fixture
def stage(fake_redis: Redis, tmp_path: Path) -> Iterator[ArchivedStage]:
    made = ArchivedStage(fake_redis, sqlite_url(tmp_path))
    yield made
    made.close()


def settings_of(url: SecretStr | None, after: float = 60.0, kept: float = 7 * 86_400) -> Settings:
    archive = ArchiveSettings(url=url, after_seconds=after)
    section = SchedulerSettings(finished_ttl_seconds=kept)
    return Settings(redis=RedisSettings(deployment="test"), archive=archive, scheduler=section)


def archiver_of(
    stage: ArchivedStage,
    monkeypatch: pytest.MonkeyPatch,
    *,
    archive: Archive | None = None,
    leads: Callable[[], bool] = lambda: True,
    after: float = 60.0,
    kept: float = 7 * 86_400,
) -> Archiver:
    """Under the stage's clock, which is the server's, too."""
    monkeypatch.setattr("fairlane.store.read.reading.RunReader.now_ms", lambda _: stage.clock.now_ms())
    settings = settings_of(stage.url, after, kept)
    return Archiver(stage.redis, settings, archive or stage.archive, stage.clock, leads)


def completed(stage: ArchivedStage, rows: int = 2) -> Any:
    run = stage.client.submit([{"n": n} for n in range(rows)], prompt="{{ n }}", model="sim:fast")
    stage.admit()
    stage.answer(run.id, rows)
    return run


def is_stub(stage: ArchivedStage, run: Any) -> bool:
    return "archived" in stage.deployment.state(stage.ref(run))


def test_a_run_is_moved_so_long_after_it_finished(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver, run = archiver_of(stage, monkeypatch), completed(stage)
    before = list(run.results())
    stage.clock.advance(59.9)
    assert archiver.tick() == LOOK_EVERY_S
    assert not is_stub(stage, run)
    stage.clock.advance(0.2)
    with structlog.testing.capture_logs() as logs:
        archiver.tick()
        archiver.tick()
    assert [(line["event"], line["run"]) for line in logs] == [(Event.RUN_ARCHIVED, run.id)]
    assert is_stub(stage, run)
    assert list(run.results()) == before


def test_only_the_leader_moves_runs(stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch) -> None:
    run, answers = completed(stage), iter([False, True, False, True, True])
    archiver = archiver_of(stage, monkeypatch, leads=lambda: next(answers), after=0)
    assert [archiver.tick(), archiver.tick()] == [LOOK_EVERY_S] * 2
    assert not is_stub(stage, run)
    archiver.tick()
    assert is_stub(stage, run)


def test_a_database_that_is_away_is_asked_again_and_redis_keeps_the_runs(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "not-yet-there"
    archive = Archive(SecretStr(f"sqlite:///{folder / 'runs.db'}"), "test")
    archiver, run = archiver_of(stage, monkeypatch, archive=archive, after=0), completed(stage)
    with structlog.testing.capture_logs() as logs:
        assert archiver.tick() == AGAIN_S
    assert [(line["event"], line["log_level"]) for line in logs] == [(Event.ARCHIVE_FAILED, "warning")]
    assert "not-yet-there" not in str(logs)
    assert not is_stub(stage, run)
    folder.mkdir()
    assert archiver.tick() == LOOK_EVERY_S
    assert is_stub(stage, run)
    archive.close()


@pytest.mark.parametrize("error", [RedisConnectionError(), StoreUnavailable("redis://", "away")])
def test_redis_is_asked_again_at_the_next_look_since_runs_may_expire(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    run, troubles = completed(stage), [error]

    def leads() -> bool:
        if troubles:
            raise troubles.pop()
        return True

    archiver = archiver_of(stage, monkeypatch, leads=leads, after=0)
    with structlog.testing.capture_logs() as logs:
        assert [archiver.tick(), archiver.tick()] == [LOOK_EVERY_S] * 2
    assert [line["event"] for line in logs] == [Event.ARCHIVE_FAILED, Event.RUN_ARCHIVED]
    assert is_stub(stage, run)


@pytest.mark.parametrize(("kept_s", "again_s"), [(7 * 86_400, 300), (45, 5)])
def test_a_run_that_cannot_be_moved_lets_the_others_pass_and_is_tried_again_before_it_expires(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch, kept_s: float, again_s: float
) -> None:
    archiver = archiver_of(stage, monkeypatch, after=0, kept=kept_s)
    broken, fine = completed(stage), completed(stage)
    plan = stage.keys.plan(stage.ref(broken))
    kept = stage.redis.getset(plan, "{}")
    with structlog.testing.capture_logs() as logs:
        archiver.tick()
        archiver.tick()
    failed = [line["run"] for line in logs if line["event"] == Event.ARCHIVE_FAILED]
    assert (failed, is_stub(stage, broken), is_stub(stage, fine)) == ([broken.id], False, True)
    stage.redis.set(plan, kept)
    stage.clock.advance(again_s - 1)
    archiver.tick()
    assert not is_stub(stage, broken)
    stage.clock.advance(1)
    archiver.tick()
    assert is_stub(stage, broken)


def test_runs_that_are_gone_are_no_longer_put_off(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver, run = archiver_of(stage, monkeypatch, after=0), completed(stage)
    ref = stage.ref(run)
    stage.redis.set(stage.keys.plan(ref), "{}")
    archiver.tick()
    assert set(archiver._put_off) == {ref}
    stage.redis.delete(*run_keys(stage.keys, ref).values())
    archiver.tick()
    assert not archiver._put_off


def test_copying_ends_when_the_process_does(stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch) -> None:
    archiver, run = archiver_of(stage, monkeypatch, after=0), completed(stage)
    archiver.thread.stop()
    with pytest.raises(Stopping):
        archiver.tick()
    assert not is_stub(stage, run)


def test_without_an_archive_nothing_is_started() -> None:
    assert start_archiver(settings_of(None), SystemClock(), lambda: True) is None


def test_a_url_that_is_wrong_is_reported_when_the_scheduler_starts() -> None:
    with pytest.raises(ConfigurationError, match=r"archive\.url"):
        start_archiver(settings_of(SecretStr("nothing")), SystemClock(), lambda: True)


def test_a_run_may_not_expire_before_it_would_be_moved() -> None:
    with pytest.raises(ConfigurationError, match=r"archive\.after_seconds.*would expire before"):
        start_archiver(settings_of(SecretStr("sqlite://"), after=7 * 86_400), SystemClock(), lambda: True)


def test_a_thread_moves_runs_until_it_is_stopped(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, archive = completed(stage), Archive(stage.url, "test")
    archiver = archiver_of(stage, monkeypatch, archive=archive, after=0)
    archiver.thread.start()
    wait_until(lambda: is_stub(stage, run))
    archiver.thread.stop()
    assert not archiver.thread.alive


def test_a_defect_does_not_end_the_thread(stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    asked: list[int] = []

    def leads() -> bool:
        asked.append(1)
        raise ZeroDivisionError

    archiver = archiver_of(stage, monkeypatch, archive=Archive(stage.url, "test"), leads=leads)
    archiver.thread.start()
    wait_until(lambda: len(asked) >= 3)
    archiver.thread.stop()


class Away:
    """An archive whose database does not answer."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def mover(self, *given: Any) -> Any:
        made = self._archive.mover(*given)

        def fail(ref: RunRef) -> None:
            raise ArchiveUnavailable("connection refused")

        made.move = fail  # type: ignore[method-assign,assignment]
        return made

    def close(self) -> None:
        self._archive.close()


def left_s(stage: ArchivedStage, run: Any) -> set[int]:
    """The seconds after which the keys of a run expire, to five."""
    ref = stage.ref(run)
    names = (name for name in run_keys(stage.keys, ref).items() if name[0] != "active")
    left = (stage.redis.pttl(key) for _, key in names)
    return {round(each / 5000) * 5 for each in left if each != -2}


def expire_soon(stage: ArchivedStage, run: Any, seconds: int) -> None:
    for name, key in run_keys(stage.keys, stage.ref(run)).items():
        if name != "active":
            stage.redis.expire(key, seconds)


def test_what_cannot_be_moved_does_not_expire_and_is_counted(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    away: Any = Away(stage.archive)
    archiver, run = archiver_of(stage, monkeypatch, archive=away), completed(stage)
    stage.clock.advance(60 + 3600)
    expire_soon(stage, run, 2 * 86_400)
    assert archiver.tick() == AGAIN_S
    assert left_s(stage, run) == {2 * 86_400}, "it has time"
    assert archiver.unmoved == (1, pytest.approx(3600, abs=1))

    expire_soon(stage, run, 3600)
    archiver.tick()

    assert left_s(stage, run) == {2 * 86_400}
    assert stage.redis.exists(stage.keys.results(stage.ref(run)))


def test_a_run_is_held_for_so_long_after_its_end_and_no_longer(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    away: Any = Away(stage.archive)
    archiver, run = archiver_of(stage, monkeypatch, archive=away), completed(stage)
    stage.clock.advance(30 * 86_400 + 1)
    expire_soon(stage, run, 3600)
    archiver.tick()
    assert left_s(stage, run) == {3600}


def test_nothing_is_held_while_redis_is_nearly_full(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(memory_used=81, memory_limit=100)
    monkeypatch.setattr("fairlane.store.read.overview.DeploymentReader.server", lambda _: full)
    away: Any = Away(stage.archive)
    archiver, run = archiver_of(stage, monkeypatch, archive=away), completed(stage)
    stage.clock.advance(120)
    expire_soon(stage, run, 3600)
    archiver.tick()
    assert left_s(stage, run) == {3600}


def test_where_runs_are_kept_shortly_the_archive_is_tried_before_they_expire(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    away: Any = Away(stage.archive)
    archiver, run = archiver_of(stage, monkeypatch, archive=away, after=1, kept=20), completed(stage)
    stage.clock.advance(5)
    expire_soon(stage, run, 9)
    assert archiver.tick() <= 5
    assert left_s(stage, run) == {20}


def test_another_leader_counts_what_waits(stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch) -> None:
    leads, away = [True], Away(stage.archive)
    archiver = archiver_of(stage, monkeypatch, archive=away, leads=lambda: leads[0])  # type: ignore[arg-type]
    completed(stage)
    stage.clock.advance(120)
    archiver.tick()
    assert archiver.unmoved.runs == 1
    leads[0] = False
    archiver.tick()
    assert archiver.unmoved.runs == 0


def test_the_gauges_of_the_archive_are_the_leader_s() -> None:
    made = ScheduledMetrics()
    registry, shown = CollectorRegistry(), cast(Any, made)
    registry.register(DeploymentMetrics(shown.leader, made.metrics, made.sampler, lambda: (3, 12.5)))
    assert registry.get_sample_value("fairlane_archive_waiting_runs") == 3
    assert registry.get_sample_value("fairlane_archive_late_seconds") == 12.5
    made.leader.epoch = 0
    assert registry.get_sample_value("fairlane_archive_waiting_runs") is None


def test_the_doctor_sees_what_waits_for_the_archive(stage: ArchivedStage) -> None:
    deployment = Deployment(settings_of(stage.url), stage.redis, archive=stage.archive)
    completed(stage)
    seen = _unmoved(deployment)
    assert seen is not None
    assert seen.runs == 1
    assert _unmoved(Deployment(settings_of(None), stage.redis)) is None
