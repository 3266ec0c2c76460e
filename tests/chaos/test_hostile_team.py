"""What one team writes to be rendered, scored or decoded delays no other team, and ends no worker."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from fairlane import Client, llm_judge
from fairlane.core.events import Event
from fairlane.model.evaluators import Assertions
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

VICTIM_ITEMS = 5
TIMES, MACHINE_S = 2.0, 1.0
"""The victim's bar, and what a machine with two cores that are both busy adds to any short run."""

LATENCY_MS = 200
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
    run = client.submit(numbered(VICTIM_ITEMS), "{{ n }}", model=f"sim:{model}")
    all_succeeded(run)
    return time.monotonic() - began_s


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_victims_items_end_in_time_beside(deployment: Cluster, kind: str) -> None:
    victim, attacker = deployment.client_of("victim"), deployment.client_of("attacker")
    calm, busy = deployment.new_model(latency_ms=LATENCY_MS), deployment.new_model(latency_ms=LATENCY_MS)
    timed(victim, calm)  # which opens its lane
    alone_s = timed(victim, calm)
    attack = attacker.submit(prompt="{{ n }}", model=f"sim:{busy}", check=False, **HOSTILE[kind])
    wait_until(lambda: attack.status().jobs_done or attack.status().state.finished)
    beside_s = timed(victim, calm)
    attack.cancel()
    assert beside_s <= TIMES * alone_s + MACHINE_S
    assert not deployment.logged(Event.WORKER_LOST)
    assert not deployment.logged(Event.LEADER_LOST)
