"""What one team writes to be rendered, scored or decoded delays no other team, and ends no worker."""

from __future__ import annotations

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
    timed(victim, calm)
    alone_s = max(timed(victim, calm) for _ in range(2))
    attack = attacker.submit(prompt="{{ n }}", model=f"sim:{busy}", check=False, **HOSTILE[kind])
    wait_until(lambda: attack.status().jobs_done or attack.status().state.finished)
    beside_s = max(timed(victim, calm) for _ in range(3))
    attack.cancel()
    assert beside_s <= TIMES * alone_s + MACHINE_S
    assert not deployment.logged(Event.WORKER_LOST)
    assert not deployment.logged(Event.LEADER_LOST)
