"""Runs, leases and lanes under arbitrary histories: nothing is lost, counted twice or done by a stranger."""

from __future__ import annotations

from functools import partial
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from tests.support.lifecycle import Lifecycle


@pytest.mark.timeout(400)  # many histories, on a machine that may be busy
@pytest.mark.slow(seconds=30)
def test_no_history_loses_a_job_or_lets_two_do_it(real_server: Redis) -> None:
    run_state_machine_as_test(
        cast("type[Lifecycle]", partial(Lifecycle, real_server)),
        settings=settings(
            max_examples=30,
            stateful_step_count=50,
            phases=set(Phase) - {Phase.explain},
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
