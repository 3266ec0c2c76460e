"""Scripts of two neighbouring versions act on the same state, in any order, as if they were one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import rule, run_state_machine_as_test
from redis import Redis

from fairlane.store.script import Call, Functions, Script
from fairlane.store.verbs import all_scripts
from tests.support.deployment import Deployment
from tests.support.lifecycle import Lifecycle
from tests.support.next_version import NextVersion, make_next_version, other_version


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> NextVersion:
    return make_next_version(tmp_path_factory.mktemp("later"))


@pytest.fixture
def other(request: pytest.FixtureRequest, tmp_path: Path) -> NextVersion:
    """The version that ``--beside`` names, else one that writes more than this."""
    commit = request.config.getoption("--beside")
    return other_version(tmp_path, commit) if commit else request.getfixturevalue("later")


class TwoVersions(Lifecycle):
    """As `Lifecycle`, but from time to time the other version's scripts take over."""

    later: NextVersion
    is_later = False

    @rule()
    def upgrade_or_go_back(self) -> None:
        type(self).is_later = not type(self).is_later

    def teardown(self) -> None:
        type(self).is_later = False


def play(monkeypatch: pytest.MonkeyPatch, later: NextVersion, is_later: Callable[[], bool]) -> None:
    """Run every verb as a script, of the later version while ``is_later``; one with another signature there
    stays this version's.
    """
    run, scripts = Call.run, dict[str, Script]()
    for now in all_scripts():
        with suppress(KeyError):
            then = later.script(now.name)
            scripts[now.name] = then if (then.keys, then.args) == (now.keys, now.args) else now

    def of_whichever_version(call: Call, redis: Any) -> Any:
        then = scripts.get(call.script.name, call.script)
        return run(Call(then, call.keys, call.args) if is_later() else call, redis)

    monkeypatch.setattr(Call, "run", of_whichever_version)
    monkeypatch.setattr(Functions, "run", lambda _, redis, call: call.run(redis))


def test_a_changed_verb_has_a_different_name_and_the_same_signature(later: NextVersion) -> None:
    differ = set()
    for now in all_scripts():
        then = later.script(now.name)
        assert (then.sha == now.sha) == (then.source == now.source)
        assert (then.keys, then.args) == (now.keys, now.args)
        differ |= {now.name} if then.sha != now.sha else set()
    assert {"permit_grant", "attempt_defer", "attempt_recover", "attempt_finish"} <= differ


def test_a_later_version_takes_a_deferred_job_to_its_end(
    real_redis: Redis, later: NextVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, later, lambda: True)
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    for signal in ("broken", "limited"):
        d.defer(d.start(ref)[0], signal=signal, cost="unproven")
        d.advance(60_000)
    assert d.finish(d.start(ref)[0]) is not None
    assert d.count(ref, "jobs_done") == 1


@pytest.mark.parametrize("first", [False, True])
def test_either_version_reads_what_a_job_has_used(
    real_redis: Redis, other: NextVersion, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    turn = [first]
    play(monkeypatch, other, lambda: turn[0])
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    (attempt,) = d.start(ref)
    for limited, used in ((True, (0, 1)), (False, (1, 1)), (True, (1, 2))):
        d.defer(attempt, cost="nothing" if limited else "attempt", rate_limited=limited)
        d.advance(60_000)
        d.promote()
        turn[0] = not turn[0]
        (attempt,) = d.take(ref)
        claim = d.claim(attempt)
        assert claim is not None
        assert (claim.attempts, claim.rate_limits) == used


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_no_history_in_two_versions_loses_a_job_or_lets_two_do_it(
    real_server: Redis, other: NextVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = set[bool]()

    def is_later() -> bool:
        used.add(TwoVersions.is_later)
        return TwoVersions.is_later

    play(monkeypatch, other, is_later)
    run_state_machine_as_test(
        cast("type[Lifecycle]", partial(TwoVersions, real_server)),
        settings=settings(
            max_examples=20,
            stateful_step_count=40,
            phases=set(Phase) - {Phase.explain},
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
    assert used == {False, True}
