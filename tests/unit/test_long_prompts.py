"""How long a rendered text may be follows the deployment's settings, which the message names."""

from __future__ import annotations

import json

import fakeredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import SubmissionError, llm_judge
from fairlane.client.submitting.submission import build_spec
from fairlane.core.errors import TemplateError
from fairlane.model.run import PROMPT_CHARS, Cell, Plan, most_chars
from fairlane.pipeline.rendering import Rendering
from fairlane.templates.meter import Bound
from fairlane.templates.template import Template
from tests.support.scheduler_parts import Parts
from tests.support.stage import Stage

CELL = Cell(row=0, prompt=0, model=0, repetition=0)
LONG = "x" * 1_500_000
TEMPLATES = [
    "{{ q }}",
    "{{ q | trim }}",
    "{{ q.replace('y', 'z') }}",
    "{% for i in [1] %}{{ q }}{% endfor %}",
]


@given(row_bytes=st.integers(1, 1 << 40), answer_bytes=st.integers(1024, 1 << 40))
def test_a_text_may_show_a_row_twice_and_an_output_beside_it(row_bytes: int, answer_bytes: int) -> None:
    assert most_chars(row_bytes) >= max(PROMPT_CHARS, 2 * row_bytes)
    assert most_chars(row_bytes, answer_bytes) == most_chars(row_bytes) + answer_bytes


@pytest.mark.parametrize("text", TEMPLATES)
def test_a_text_within_its_bound_is_rendered_whole(text: str) -> None:
    template = Template("prompt", text, bound=Bound(len(LONG)))
    assert template.render({"q": LONG}) == LONG
    with pytest.raises(
        TemplateError, match=r"more than 1,500,000 characters|the 1,500,000 allowed"
    ) as caught:
        template.render({"q": LONG + "x"})
    assert "raise scheduler.limits.row_bytes" in str(caught.value)
    with pytest.raises(TemplateError, match="1,048,576"):
        Template("prompt", text).render({"q": LONG})


def test_tasks_and_judges_have_bounds_of_their_own() -> None:
    judge = llm_judge("sim:judge", "{{ output }}", {"y": 1})
    spec = build_spec("r", "t", 0, prompt="{{ q }}", model="sim:fast", evaluators=[judge])
    rendering = Rendering(Plan(spec=spec, prompt_chars=10, judged_chars=1_000))
    with pytest.raises(TemplateError, match="10 characters"):
        rendering.task(CELL, {"q": "x" * 11})
    rendering.evaluation(spec.evals[0], {}, "x" * 900)
    with pytest.raises(TemplateError, match=r"row_bytes or worker\.max_response_bytes"):
        rendering.evaluation(spec.evals[0], {}, "x" * 1_100)


def test_a_plan_of_an_earlier_version_has_its_bound() -> None:
    spec = build_spec("r", "t", 0, prompt="{{ q }}", model="sim:fast")
    stored = json.loads(Plan(spec=spec).model_dump_json())
    del stored["prompt_chars"], stored["judged_chars"]
    assert Plan.read(json.dumps(stored)).prompt_chars == PROMPT_CHARS


def test_submission_follows_the_clients_settings(stage: Stage) -> None:
    rows = [{"q": "x" * 700_000, "p": "y" * 700_000}]
    with pytest.raises(SubmissionError, match=r"raise scheduler\.limits\.row_bytes"):
        stage.client.submit([{"q": "x" * 1_000_000}], "{{ q }}{{ q }}{{ q }}", model="sim:fast")
    with pytest.raises(SubmissionError, match=r"at most 1,048,576 are allowed"):
        stage.client.submit(rows, "{{ q }}{{ p }}", model="sim:fast")
    stage.client.submit([{"q": "x" * 1_000_000}], "{{ q }}{{ q }}", model="sim:fast")


def test_the_plan_of_a_run_carries_the_bounds_of_its_scheduler() -> None:
    parts = Parts(fakeredis.FakeRedis(), limits={"row_bytes": 4 << 20})  # type: ignore[arg-type]
    ref = parts.upload(parts.spec(1, judges=["sim:judge"]), [{"q": 1}])
    parts.receiver.tick(None, parts.moment())
    run = parts.backlog.get(ref)
    assert run is not None
    assert run.plan.prompt_chars == 8 << 20
