"""What one team writes, asks for or chooses delays no other team, and ends no worker."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from fairlane import Client, llm_judge
from fairlane.core.events import Event
from fairlane.model.evaluators import Assertions
from tests.chaos.conftest import LANES_OF_A_TEAM, RESERVED_SLOTS, SLOTS, WORKERS
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.hostile_team import ACTS, TEAM, HostileTeam
from tests.support.hostile_team import generated as submit_generated
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

VICTIM_ITEMS = 5
TIMES, MACHINE_S = 2.0, 1.0
"""The victim's bar, and what a machine with two cores that are both busy adds to any short run."""

LATENCY_MS, QUICK_MS, HANGS_MS = 200, 100, 120_000
READ_S = 60.0
"""Longer than a scheduler needs to read a team's inbox, at the tenth of its time that such a team gets."""

ROWS = 40
LOOPS = "{% for a in s %}{% for b in s %}{{ a|upper }}{% endfor %}{% endfor %}{{ output }}"


def assertions(*checks: dict[str, Any], **row: Any) -> dict[str, Any]:
    rows = [{"n": n, "f": list(checks), **row} for n in range(ROWS)]
    return {"dataset": rows, "evaluators": [Assertions(name="a", field="f")]}


def judged(template: str, **row: Any) -> dict[str, Any]:
    rows = [{"n": n, **row} for n in range(ROWS)]
    judge = llm_judge("sim:m1", template, choices={"yes": 1.0, "no": 0.0})
    return {"dataset": rows, "evaluators": [judge]}


def generated(seed: int) -> dict[str, Any]:
    """Rows whose assertions nobody thought of: nested quantifiers, counted ones, schemas inside schemas."""
    chance = random.Random(seed)

    def pattern(depth: int) -> str:
        part = chance.choice(["a", r"\w", ".", "[^b]", r"\s"]) if depth == 0 else f"(?:{pattern(depth - 1)})"
        other = f"|{pattern(depth - 1)}" if depth and chance.random() < 0.5 else ""
        return f"(?:{part}{other}){chance.choice(['*', '+', '?', '{1,9}', '{40}', ''])}"

    def schema(depth: int) -> dict[str, Any]:
        inner = {"pattern": pattern(2)} if depth == 0 else schema(depth - 1)
        return chance.choice([{"items": inner}, {"properties": {"a": inner}}, {"enum": [[depth] * 50]}])

    kinds = [("regex", lambda: pattern(4) + "b$"), ("contains-json", lambda: schema(20))]
    rows = []
    for n in range(ROWS):
        picked = [chance.choice(kinds) for _ in range(20)]
        rows.append({"n": n, "f": [{"type": kind, "value": made()} for kind, made in picked]})
    return {"dataset": rows, "evaluators": [Assertions(name="a", field="f")]}


HOSTILE: dict[str, dict[str, Any]] = {
    "patterns that are long to search": assertions(
        *[{"type": "regex", "value": rf"(\w+\s?|.)+(?<!.){{{n}}}"} for n in range(1, 40)]
    ),
    "patterns that are long to compile": assertions(
        *[{"type": "regex", "value": f"(?:a{{{90 + n}}}){{100}}"} for n in range(200)]
    ),
    "many assertions": assertions(*[{"type": "icontains", "value": "İ" * 500 + str(n)} for n in range(900)]),
    "schemas": assertions(*[{"type": "contains-json", "value": {"enum": [[n] * 50]}} for n in range(500)]),
    "loops": judged(LOOPS, s="a" * 320),
    "searches from the right": judged(
        "{{ s.rfind(p) }}{{ output }}" * 4, s="a" * 200_000, p="ab" + "a" * 99_000
    ),
    "what was generated": generated(20),
    "large rows": {"dataset": [{"n": n, "s": "x" * 40_000} for n in range(200)]},
    "many values": {"dataset": [{"n": n, "v": [[]] * 20_000} for n in range(100)]},
}


def timed(client: Client, model: str) -> float:
    began_s = time.monotonic()
    run = client.submit(numbered(VICTIM_ITEMS), "{{ n }}", model=model)
    all_succeeded(run)
    return time.monotonic() - began_s


def assert_in_time(deployment: Cluster, alone_s: float, beside_s: float) -> None:
    assert beside_s <= TIMES * alone_s + MACHINE_S
    assert not deployment.logged(Event.WORKER_LOST)
    assert not deployment.logged(Event.LEADER_LOST)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_submission_delays_no_other_team(deployment: Cluster, kind: str) -> None:
    victim, attacker = deployment.client_of("victim"), deployment.client_of("attacker")
    calm, busy = (f"sim:{deployment.new_model(latency_ms=LATENCY_MS)}" for _ in range(2))
    timed(victim, calm)  # which opens its lane
    alone_s = timed(victim, calm)
    attack = attacker.submit(prompt="{{ n }}", model=busy, check=False, **HOSTILE[kind])
    wait_until(lambda: attack.status().jobs_done or attack.status().state.finished)
    beside_s = timed(victim, calm)
    attack.cancel()
    assert_in_time(deployment, alone_s, beside_s)


def beside(deployment: Cluster, act: Any) -> None:
    """A victim's items end in time while a hostile team's words are read, and after that."""
    victim, calm = deployment.client_of("victim"), f"sim:{deployment.new_model(latency_ms=LATENCY_MS)}"
    timed(victim, calm)
    alone_s = timed(victim, calm)
    team = HostileTeam(deployment.redis, deployment.keys, f"sim:{deployment.new_model()}")
    act(team)
    deployment.redis.publish(deployment.keys.wake, f"inbox:{TEAM}")
    assert_in_time(deployment, alone_s, timed(victim, calm))
    wait_until(lambda: not team.asks, timeout=READ_S)
    assert_in_time(deployment, alone_s, timed(victim, calm))
    team.give_up()


@pytest.mark.parametrize("act", ACTS)
def test_hostile_raw_commands_delay_no_other_team(deployment: Cluster, act: str) -> None:
    beside(deployment, ACTS[act])


def test_a_generated_hostile_submission_delays_no_other_team(deployment: Cluster) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    beside(deployment, lambda team: submit_generated(team, seed))


CHOICES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a deadline that is too short": ({"latency_ms": 3000}, {"timeout": 0.5}),
    "a deadline of a millisecond": ({}, {"timeout": 0.001}),
    "a model that always fails": ({"status_always": 500}, {}),
    "a model that is always overloaded": ({"status_always": 503}, {}),
    "a model without a quota": ({"status_always": 429}, {}),
    "a model that the key may not use": ({"status_always": 403}, {}),
    "a model that does not exist": ({"status_always": 404}, {}),
    "a model that answers nonsense": ({"faults": {"malformed": 1.0}}, {}),
}


@pytest.mark.parametrize(("place", "kind"), list(enumerate(CHOICES)))
def test_options_of_one_team_spoil_no_estimate_of_a_shared_lane(
    deployment: Cluster, place: int, kind: str
) -> None:
    behaviour, options = CHOICES[kind]
    victim, attacker = deployment.client_of("victim"), deployment.client_of(TEAM)
    good = f"shared{place}:{deployment.new_model(latency_ms=QUICK_MS)}"
    model = deployment.new_model(**behaviour)
    timed(victim, good)
    alone_s = timed(victim, good)
    attack = attacker.submit(numbered(200), "{{ n }}", model=f"shared{place}:{model}", check=False, **options)

    def has_begun() -> bool:
        """429s use up no attempts, so they are counted where they are given."""
        status, limited = attack.status(), behaviour.get("status_always") == 429
        refused = deployment.served(model).requests if limited else status.retries
        return refused >= 5 or status.jobs_done > 0

    wait_until(has_begun)
    for _ in range(3):
        assert_in_time(deployment, alone_s, timed(victim, good))
    attack.cancel()


def test_calls_that_hang_in_all_slots_that_a_team_may_have_delay_no_other_team(deployment: Cluster) -> None:
    # `TEAM` may have opened all lanes that it may.
    victim, attacker = deployment.client_of("victim"), deployment.client_of("hanging")
    calm, hangs = (f"sim:{deployment.new_model(latency_ms=ms)}" for ms in (LATENCY_MS, HANGS_MS))
    timed(victim, calm)
    alone_s = timed(victim, calm)
    attack = attacker.submit(numbered(WORKERS * SLOTS * 2), "{{ n }}", model=hangs, check=False)
    most = WORKERS * SLOTS - RESERVED_SLOTS
    wait_until(lambda: attack.status().in_flight == most)
    for model in (calm, f"sim:{deployment.new_model(latency_ms=LATENCY_MS)}"):
        assert_in_time(deployment, alone_s, timed(victim, model))
    attack.cancel()


def test_a_team_may_open_a_bounded_number_of_lanes(deployment: Cluster) -> None:
    victim, attacker = deployment.client_of("victim"), deployment.client_of(TEAM)
    alone_s = timed(victim, f"sim:{deployment.new_model(latency_ms=LATENCY_MS)}")
    attack = attacker.submit(numbered(3 * LANES_OF_A_TEAM), "{{ n }}", model="sim:zz{{ n }}", check=False)
    beside_s = timed(victim, f"sim:{deployment.new_model(latency_ms=LATENCY_MS)}")
    attack.wait(timeout=READ_S)
    after_s = timed(victim, f"sim:{deployment.new_model(latency_ms=LATENCY_MS)}")
    opened = [team for team in deployment.lanes.openers().values() if team == TEAM]
    assert len(opened) <= LANES_OF_A_TEAM
    assert_in_time(deployment, alone_s, beside_s)
    assert_in_time(deployment, alone_s, after_s)
