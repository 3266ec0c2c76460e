"""A team's budget on the real stack: its work waits, says why, and goes on once an operator raises it."""

from __future__ import annotations

from fairlane.core.events import Event
from fairlane.store.write.budgets import Budgets
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.wait import wait_until


def test_a_teams_work_waits_at_its_budget_and_goes_on_when_it_is_raised(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=5)
    lane, budgets = f"sim:{model}", Budgets(deployment.redis, deployment.keys)
    deployment.lanes.configure(lane, None)
    budgets.set("frugal", "month", {"requests": 10}, lane=lane)
    try:
        run = deployment.client_of("frugal").submit(numbered(25), "{{ n }}", model=lane)
        other = deployment.client_of("other").submit(numbered(25), "other {{ n }}", model=lane)
        all_succeeded(other)
        wait_until(lambda: run.status().jobs_done == 10 and run.why().constraint == "team_budget")
        assert f"team budget of 10 requests a month on {lane} is used up until 1 " in run.why().sentence
        assert deployment.served(model).requests == 35
        deployment.wait_logged(Event.BUDGET_USED_UP, team="frugal", unit="requests", most=10)
        budgets.set("frugal", "month", {"requests": 100}, lane=lane)
        all_succeeded(run)
        (found,) = budgets.of(["frugal"], run.why().now_ms)
        assert (found.used, found.state) == (25, "open")
    finally:
        budgets.set("frugal", "month", {"requests": None}, lane=lane)
