"""Items that go one at a time: those marked so first, and all of them where later ones read earlier ones."""

from __future__ import annotations

from fairlane.core.events import Event
from fairlane.evaluators.builders import llm_judge
from tests.support.cluster import Cluster, all_succeeded, numbered


def test_items_marked_run_serially_go_first_one_at_a_time(deployment: Cluster) -> None:
    serial, other = deployment.new_model(latency_ms=30), deployment.new_model(latency_ms=30)
    rows = [{"m": other}, {"m": serial, "alone": True}] * 4
    run = deployment.client.submit(rows, "question", model="sim:{{ m }}", run_serially="alone")
    order = [record.item for record in run.stream()]
    assert order[:4] == [1, 3, 5, 7]
    assert sorted(order[4:]) == [0, 2, 4, 6]
    assert deployment.served(serial).peak_in_flight == 1
    assert deployment.served(other).peak_in_flight > 1


def test_a_serial_item_is_over_with_its_evaluations_before_the_next_begins(deployment: Cluster) -> None:
    tasks, judge = (
        deployment.new_model(latency_ms=1),
        deployment.new_model(output="fixed", fixed_text="yes", latency_ms=40),
    )
    scorer = llm_judge(f"sim:{judge}", "{{ output }}", {"yes": 1, "no": 0})
    run = deployment.client.submit(
        numbered(5), "{{ n }}", model=f"sim:{tasks}", evaluators=[scorer], run_serially=True
    )
    assert [record.item for record in run.stream()] == list(range(5))
    assert deployment.served(judge).peak_in_flight == 1


def test_a_prompt_that_uses_the_conversation_makes_the_run_serial_and_says_so(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=1)
    prompt = "{% for turn in _conversation %}{{ turn.output }};{% endfor %}{{ n }}"
    run = deployment.client.submit(numbered(4), prompt, model=f"sim:{model}")
    assert [record.output for record in all_succeeded(run)] == ["0", "0;1", "0;0;1;2", "0;0;1;0;0;1;2;3"]
    (shown,) = deployment.logged(Event.RUN_ADMITTED, run=run.id)
    assert shown["serial"] is True


def test_conversations_are_apart_by_their_field(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=1)
    rows = [{"n": n, "who": "ab"[n % 2]} for n in range(4)]
    prompt = "{{ _conversation | length }}:{{ n }}"
    run = deployment.client.submit(rows, prompt, model=f"sim:{model}", conversation="who")
    assert [record.output for record in all_succeeded(run)] == ["0:0", "0:1", "1:2", "1:3"]


def test_earlier_turns_reach_the_provider_as_messages(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=1)
    rows = [{"n": str(turn) * 40, "who": who} for who in range(3) for turn in range(3)]
    chat = ["_conversation", {"role": "user", "content": "{{ n }}"}]
    run = deployment.client.submit(rows, messages=chat, model=f"sim:{model}", conversation="who")
    records = all_succeeded(run)
    assert [record.output for record in records] == [row["n"] for row in rows]
    assert [record.usage.input_tokens for record in records if record.usage] == [10, 31, 51] * 3


def test_conversations_go_side_by_side_and_their_turns_one_at_a_time(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=100)
    rows = [{"n": turn, "who": who} for who in range(8) for turn in range(3)]
    prompt = "{% for turn in _conversation %}{{ turn.input | last }}{% endfor %}{{ n }}"
    run = deployment.client.submit(rows, prompt, model=f"sim:{model}", conversation="who")
    assert [record.output for record in all_succeeded(run)] == ["0", "01", "012"] * 8
    assert deployment.served(model).peak_in_flight > 4
    places = [record.item % 3 for record in run.stream()]
    assert places.index(2) >= 8, "first turns of all conversations end before a third one"


def test_a_stored_output_is_read_by_later_items(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=1)
    rows = [{"n": 0}, {"n": 1}, {"n": 2}]
    prompt = "{{ n }}{% if n %} after {{ last }}{% endif %}"
    run = deployment.client.submit(rows, prompt, model=f"sim:{model}", store_output_as="last")
    assert [record.output for record in all_succeeded(run)] == ["0", "1 after 0", "2 after 1 after 0"]
