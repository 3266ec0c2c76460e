"""A run with its templates compiled: who is asked what, for each of its jobs. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlane.errors import TemplateError
from fairlane.evaluators.agents import answer_format, instruction
from fairlane.evaluators.scorers import as_text
from fairlane.evaluators.spec import Agent, FunctionScorer, Judge, Similarity
from fairlane.evaluators.steps import Step
from fairlane.lane import FUNCTIONS
from fairlane.prompts import Prompt, Template
from fairlane.redaction import is_secret_name
from fairlane.run import Cell, Plan, RunSpec
from fairlane.tokens import Estimate, estimate_call, estimate_inputs

OPERATORS_OWN = frozenset(
    {
        *("api_base", "api_host", "api_version", "azure_endpoint", "base_url", "default_headers"),
        *("default_query", "endpoint", "extra_body", "extra_headers", "extra_query", "headers"),
        *("http_client", "organization", "proxies", "proxy"),
    }
)
"""Names under which clients and proxies of providers take an address, headers or a way there."""

Row = Mapping[str, Any]
Turns = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """One call, rendered. ``arguments`` are those of a Python function, ``inputs`` texts to embed; then there
    are no messages.
    """

    model: str
    messages: list[dict[str, Any]]
    params: Mapping[str, Any]
    arguments: Mapping[str, Any] | None = None
    inputs: tuple[str, ...] | None = None

    @property
    def tokens(self) -> Estimate:
        """What to reserve for it; a function uses none."""
        if self.arguments is not None:
            return Estimate(0, 0)
        if self.inputs is not None:
            return estimate_inputs(self.inputs)
        return estimate_call(self.messages, self.params)

    def digest(self, repetition: int) -> str:
        """Names its content, so that an equal call need not be made again; repetitions are apart."""
        asked = self.messages if self.inputs is None else {"inputs": self.inputs}
        content = [self.model, asked, dict(self.params), self.arguments, repetition]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Rendering:
    """Compiled once for a run. Raises `TemplateError` where a template does not compile."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        spec = self.spec = plan.spec
        _check_params(spec)
        self._prompts = [Prompt(messages, f"prompts[{i}]") for i, messages in enumerate(spec.prompts)]
        self._models = [Template(f"models[{i}]", text) for i, text in enumerate(spec.models)]
        self._templates = {
            each.name: Template(f"evaluators[{each.name}].template", each.template)
            for each in spec.evaluators
            if isinstance(each, Judge | Agent)
        }
        store = spec.order.store_output_as
        self._register = Template("store_output_as", store) if store is not None else None

    def model(self, cell: Cell, row: Row) -> str:
        """Who does the item's task."""
        return self._models[cell.model].render(row).strip()

    def task(self, cell: Cell, row: Row, memory: Row | None = None) -> Call:
        """The item's task; ``memory`` is what earlier items left for later ones.

        Raises `TemplateError`, or ``ValueError`` where the row's request is none.
        """
        spec, model = self.spec, self.model(cell, row)
        if model.startswith(f"{FUNCTIONS}:"):
            messages = self._prompts[cell.prompt].render(row) if self._prompts else None
            arguments = {"row": dict(row), "params": dict(spec.params)}
            return Call(model, [], {}, arguments | ({"messages": messages} if messages else {}))
        if spec.request_field is not None:
            return _requested(spec, model, row)
        names = {**memory, **row} if memory else row
        return Call(model, self._prompts[cell.prompt].render(names), spec.params)

    def evaluation(self, step: Step, row: Row, output: str) -> Call:
        """One evaluation of an item's output. Raises `TemplateError`."""
        evaluator = step.evaluator
        if isinstance(evaluator, FunctionScorer):
            return Call(step.model, [], {}, {"output": output, "row": dict(row)})
        if isinstance(evaluator, Similarity):
            inputs = (output, _reference(evaluator, row))
            return Call(evaluator.model, [], evaluator.params, inputs=inputs)
        text = self._templates[evaluator.name].render(row, output=output, **_criterion_names(step))
        if isinstance(evaluator, Judge):
            return _asked(evaluator.model, text, evaluator.params)
        criteria = (step.criterion,) if step.criterion else evaluator.criteria
        params = dict(evaluator.params)
        if evaluator.model.partition(":")[0] not in self.plan.unstructured:
            params["response_format"] = answer_format(criteria, batch=step.batch)
        return _asked(evaluator.model, f"{text}\n\n{instruction(criteria, batch=step.batch)}", params)

    def session(self, step: Step, turns: Turns) -> Call:
        """One evaluation of a session; ``turns`` are ``{"row", "output"}``, in order. Raises
        `TemplateError`.
        """
        evaluator = step.evaluator
        if isinstance(evaluator, FunctionScorer):
            return Call(step.model, [], {}, {"session": [dict(turn) for turn in turns]})
        if isinstance(evaluator, Similarity):
            raise TemplateError(f"evaluators[{evaluator.name}]", "embeddings are compared by item")
        text = self._templates[evaluator.name].render({}, session=list(turns))
        return _asked(step.model, text, evaluator.params)

    def register(self, row: Row) -> str:
        """The name under which later items find this one's output; empty where it is not kept."""
        return self._register.render(row).strip() if self._register else ""


def operators_own(params: Mapping[str, Any]) -> str | None:
    """The first parameter that says where a call goes or with which credential: only connections do."""
    for name in params:
        if name.lower().replace("-", "_") in OPERATORS_OWN or is_secret_name(name):
            return name
    return None


def _check_params(spec: RunSpec) -> None:
    """A function's parameters are its own; those of calls of models are sent to a provider."""
    stated = {
        f"evaluators[{e.name}].params": e.params
        for e in spec.evaluators
        if isinstance(e, Judge | Agent | Similarity)
    }
    if not all(model.startswith(f"{FUNCTIONS}:") for model in spec.models):
        stated["params"] = spec.params
    for field, params in stated.items():
        if taken := operators_own(params):
            raise TemplateError(
                field, f"{taken!r} is not a run's to say: the operator configures connections"
            )


def is_judged(step: Step, row: Row) -> bool:
    """Whether an item of this row has this evaluation."""
    when = step.evaluator.when if isinstance(step.evaluator, Judge | Similarity) else None
    return not when or bool(row.get(when))


def _reference(evaluator: Similarity, row: Row) -> str:
    """What the output is compared to."""
    if evaluator.expected is None:
        return evaluator.text or ""
    if row.get(evaluator.expected) is None:
        field = f"evaluators[{evaluator.name}].expected"
        raise TemplateError(field, f"the row has no field {evaluator.expected!r}")
    return as_text(row[evaluator.expected])


def _criterion_names(step: Step) -> dict[str, Any]:
    if not isinstance(step.evaluator, Agent):
        return {}
    criteria = (step.criterion,) if step.criterion else step.evaluator.criteria
    names: dict[str, Any] = {"criteria": [each.model_dump() for each in criteria]}
    return names | {"criterion": names["criteria"][0]} if step.criterion else names


def _asked(model: str, text: str, params: Mapping[str, Any]) -> Call:
    return Call(model, [{"role": "user", "content": text}], params)


def _requested(spec: RunSpec, model: str, row: Row) -> Call:
    """The chat body that a row holds, sent to the run's model."""
    body = row.get(str(spec.request_field))
    if not isinstance(body, Mapping) or not isinstance(body.get("messages"), list):
        raise TemplateError("request_field", f"the row's field {spec.request_field!r} holds no chat request")
    params = {name: value for name, value in body.items() if name not in ("model", "messages", "stream")}
    if taken := operators_own(params):
        raise TemplateError("request_field", f"the row's request sets {taken!r}, which connections alone say")
    return Call(model, [dict(each) for each in body["messages"]], {**spec.params, **params})
