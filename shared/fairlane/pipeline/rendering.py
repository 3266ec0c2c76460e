"""Renders the call of each job of a run, from templates that are compiled once. Pure functions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from fairlane.core.errors import TemplateError
from fairlane.core.redaction import is_secret_name
from fairlane.evaluators.rubrics import FORMING, answer_format, enclosed, instruction, tool_of, verdict_format
from fairlane.evaluators.scorers import as_text
from fairlane.model.choices import CONVERSATION
from fairlane.model.evaluators import Agent, FunctionScorer, Judge, Similarity
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import Cell, Plan, RunSpec, cell_of
from fairlane.model.steps import Step
from fairlane.model.tokens import Estimate, estimate_call, estimate_inputs
from fairlane.pipeline.requests import URL_FIELD, MalformedRequest, read_request
from fairlane.templates.meter import ANSWER_SETTING, ROW_SETTING, Bound
from fairlane.templates.template import Prompt, Template, lacking, variables

OPERATORS_OWN = frozenset(
    {
        *("api_base", "api_host", "api_version", "azure_endpoint", "base_url", "default_headers"),
        *("default_query", "endpoint", "extra_body", "extra_headers", "extra_query", "headers"),
        *("http_client", "organization", "proxies", "proxy"),
    }
)
"""Parameters by which providers' clients change the address, the headers or the route of a call."""

Row = Mapping[str, Any]
Turns = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """A rendered call: ``messages`` for a chat, ``arguments`` for a Python function, ``inputs`` to embed.

    ``optional`` names parameters that Fairlane added, which are left out if a model does not support them.
    """

    model: str
    messages: list[dict[str, Any]]
    params: Mapping[str, Any]
    arguments: Mapping[str, Any] | None = None
    inputs: tuple[str, ...] | None = None
    optional: frozenset[str] = frozenset()

    @property
    def tokens(self) -> Estimate:
        """The tokens to reserve for it; a function uses none."""
        if self.arguments is not None:
            return Estimate(0, 0)
        if self.inputs is not None:
            return estimate_inputs(self.inputs)
        return estimate_call(self.messages, self.params)

    def digest(self, sample: str, servers: Mapping[str, str]) -> str | None:
        """Its cache key: equal calls to one server have equal keys if they are of equal samples.

        ``sample`` is a `RunItem.sample`; ``servers``: by connection, the server that it calls. ``None`` for a
        call to none of them. So a function has no key: the code behind its name may change.
        """
        server = servers.get(self.model.partition(":")[0])
        if server is None:
            return None
        asked = self.messages if self.inputs is None else {"inputs": self.inputs}
        content = [server, self.model, asked, dict(self.params), sample]
        return _digest(content)


@dataclass(frozen=True, slots=True)
class RunItem:
    """An item of a run, with its row. ``number`` counts a run's items from 0."""

    rendering: Rendering
    number: int
    cell: Cell
    row: Row

    @classmethod
    def of(cls, rendering: Rendering, number: int, row: Row) -> RunItem:
        """Item ``number``, with its cell."""
        return cls(rendering, number, cell_of(rendering.spec, number), row)

    @property
    def spec(self) -> RunSpec:
        """The run's spec."""
        return self.rendering.spec

    def job(self, step: int) -> int:
        """The job of one of its steps."""
        return self.number * self.spec.steps + step

    def sample(self, step: int) -> str:
        """The identity of the sample that a step of this item asks for, equal in every run.

        Equal calls of two rows, prompts, models, repetitions or evaluators ask for two samples. With one
        answer for both, judges would agree falsely, and a second run would differ from the first.
        """
        spec, cell = self.spec, self.cell
        evaluator = spec.evals[step - 1].name if step else None
        prompt = self.rendering.prompt_digests[cell.prompt] if spec.prompts else None
        model = spec.models[cell.model] if spec.models else None
        return _digest([evaluator, dict(self.row), prompt, model, cell.repetition])

    def model(self) -> str | None:
        """Its task's model; ``None`` if the run calls no tasks or the row names no model."""
        try:
            return self.rendering.model(self.cell, self.row) if self.spec.models else None
        except TemplateError:
            return None

    def stored_model(self) -> str | None:
        """The model to store in the item's result; ``None`` also if readers of it know it from the spec."""
        model = self.model()
        return None if self.spec.models and model == self.spec.models[self.cell.model] else model


class Rendering:
    """The compiled templates of a run. Raises `TemplateError` if one does not compile."""

    def __init__(self, plan: Plan, *, checked: bool = False) -> None:
        """``checked``: they are known to compile; each is compiled only when it renders."""
        self.plan = plan
        spec = self.spec = plan.spec
        _check_params(spec)
        asked = Bound(plan.prompt_chars)
        shown = Bound(plan.judged_chars, f"{ROW_SETTING} or {ANSWER_SETTING}")
        self._prompts = [
            Prompt(messages, f"prompts[{i}]", checked=checked, bound=asked)
            for i, messages in enumerate(spec.prompts)
        ]
        self.prompt_digests = [_digest([each.model_dump() for each in messages]) for messages in spec.prompts]
        self._models = [Template(f"models[{i}]", text, checked=checked) for i, text in enumerate(spec.models)]
        self._templates = {
            each.name: Template(
                f"evaluators[{each.name}].template", each.template, checked=checked, bound=shown
            )
            for each in spec.evaluators
            if isinstance(each, Judge | Agent)
        }
        store = spec.order.store_output_as
        self._register = Template("store_output_as", store, checked=checked) if store is not None else None

    def markup(self) -> dict[str, str]:
        """The templates that only Jinja can compile, by field."""
        prompts = (template for prompt in self._prompts for template in prompt.templates)
        register = () if self._register is None else (self._register,)
        templates = (*prompts, *self._models, *self._templates.values(), *register)
        return {each.field: text for each in templates if (text := each.markup) is not None}

    def model(self, cell: Cell, row: Row) -> str:
        """The model of the item's task."""
        return self._models[cell.model].render(row).strip()

    def task(self, cell: Cell, row: Row, memory: Row | None = None) -> Call:
        """The item's task; ``memory``: names and values that earlier items of a serial run stored.

        Raises `TemplateError`, or ``ValueError`` if the row's request is malformed.
        """
        spec, model = self.spec, self.model(cell, row)
        if model.startswith(f"{FUNCTIONS}:"):
            messages = self._prompts[cell.prompt].render(row) if self._prompts else None
            arguments = {"row": dict(row), "params": dict(spec.params)}
            return Call(model, [], {}, arguments | ({"messages": messages} if messages else {}))
        if spec.request_field is not None:
            takes_responses = model.partition(":")[0] in self.plan.responses
            return _requested(spec, model, row, as_responses=takes_responses)
        messages = self._prompts[cell.prompt].render(_with_memory(row, memory))
        return Call(model, _with_turns(messages, memory), spec.params)

    def model_chars(self, cell: Cell, row: Row) -> int | None:
        """Like `Template.chars`, of the item's model."""
        if not self._models:
            return 0
        model = self._models[cell.model]
        return model.chars({} if model.constant else variables(row))

    def task_chars(self, cell: Cell, row: Row, memory: Row | None = None) -> int | None:
        """Like `Template.chars`, of all texts of the item's task."""
        model = self.model_chars(cell, row)
        if model is None or not self._prompts:
            given = None if self.spec.request_field is None else row.get(self.spec.request_field)
            return model + len(given) if model is not None and isinstance(given, str) else model
        chars = self._prompts[cell.prompt].chars(_with_memory(row, memory))
        return None if chars is None else model + chars

    def register_chars(self, row: Row) -> int | None:
        """Like `Template.chars`, of the name under which later items find this one's output."""
        return self._register.chars(variables(row)) if self._register else 0

    def evaluation_chars(self, step: Step, row: Row, output: str) -> int | None:
        """Like `Template.chars`, of the texts of one evaluation."""
        template = self._templates.get(step.evaluator.name)
        if template is None:
            return len(output)
        output = _shown(step.evaluator, output)
        return template.chars(variables(row, output=output, **_criterion_names(step)))

    def evaluation(self, step: Step, row: Row, output: str) -> Call:
        """One evaluation of an item's output. Raises `TemplateError`."""
        evaluator = step.evaluator
        if isinstance(evaluator, FunctionScorer):
            return Call(step.model, [], {}, {"output": output, "row": dict(row)})
        if isinstance(evaluator, Similarity):
            inputs = (output, _reference(evaluator, row))
            return Call(evaluator.model, [], evaluator.params, inputs=inputs)
        output = _shown(evaluator, output)
        text = self._templates[evaluator.name].render(row, output=output, **_criterion_names(step))
        if isinstance(evaluator, Judge):
            return self._judged(evaluator, text)
        criteria = (step.criterion,) if step.criterion else evaluator.criteria
        text = f"{text}\n\n{instruction(criteria, batch=step.batch)}"
        return self._formed(evaluator, text, answer_format(criteria, batch=step.batch))

    def session(self, step: Step, turns: Turns) -> Call:
        """One evaluation of a session; ``turns`` are ``{"row", "output"}``, in order. Raises
        `TemplateError`.
        """
        evaluator = step.evaluator
        if isinstance(evaluator, FunctionScorer):
            return Call(step.model, [], {}, {"session": [dict(turn) for turn in turns]})
        if not isinstance(evaluator, Judge):
            raise TemplateError(
                f"evaluators[{evaluator.name}]", f"{evaluator.kind} scores items, not sessions"
            )
        text = self._templates[evaluator.name].render({}, session=list(turns))
        return self._judged(evaluator, text)

    def _judged(self, judge: Judge, text: str) -> Call:
        if judge.reasons is None:
            return _asked(judge.model, text, judge.params)
        return self._formed(judge, text, verdict_format(list(judge.choices), reasons=judge.reasons))

    def _formed(self, evaluator: Judge | Agent, text: str, form: Mapping[str, Any]) -> Call:
        """A call whose answer must have ``form``, if the connection supports it and the run sets no other."""
        connection = evaluator.model.partition(":")[0]
        if connection in self.plan.unstructured or not FORMING.isdisjoint(evaluator.params):
            return _asked(evaluator.model, text, evaluator.params)
        added = tool_of(form) if connection in self.plan.tooled else {"response_format": form}
        call = _asked(evaluator.model, text, {**evaluator.params, **added})
        return replace(call, optional=frozenset(added))

    def register(self, row: Row) -> str:
        """The name under which later items find this one's output; empty if the run keeps none."""
        return self._register.render(row).strip() if self._register else ""


def _with_memory(row: Row, memory: Row | None) -> Row:
    """The variables of a prompt: values that earlier items stored replace fields of the same name."""
    return {**row, **memory} if memory else row


def _with_turns(messages: list[dict[str, Any]], memory: Row | None) -> list[dict[str, Any]]:
    """``messages`` with the earlier turns in the place of the message that stands for them.

    Raises `TemplateError` if the memory holds no turns: a team may write there.
    """
    try:
        turns = [
            {"role": role, "content": str(turn.get(part, ""))}
            for turn in (memory or {}).get(CONVERSATION, ())
            for role, part in (("user", "input"), ("assistant", "output"))
        ]
    except (AttributeError, TypeError):
        raise TemplateError(CONVERSATION, "it holds no turns") from None
    return list(chain.from_iterable(turns if each["role"] == CONVERSATION else [each] for each in messages))


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def operator_parameter(params: Mapping[str, Any]) -> str | None:
    """The first parameter that sets an address or a credential: only connections may; else ``None``."""
    for name in params:
        if name.lower().replace("-", "_") in OPERATORS_OWN or is_secret_name(name):
            return name
    return None


def _check_params(spec: RunSpec) -> None:
    """Raises `TemplateError` for a parameter of a model's call that `operator_parameter` names."""
    configured = {
        f"evaluators[{e.name}].params": e.params
        for e in spec.evaluators
        if isinstance(e, Judge | Agent | Similarity)
    }
    if not all(model.startswith(f"{FUNCTIONS}:") for model in spec.models):
        configured["params"] = spec.params
    for field, params in configured.items():
        if taken := operator_parameter(params):
            raise TemplateError(
                field, f"{taken!r} cannot be set by a run: the operator configures connections"
            )


def is_judged(step: Step, row: Row) -> bool:
    """Whether the evaluation's ``when`` field lets it run on this row."""
    when = step.evaluator.when if isinstance(step.evaluator, Judge | Similarity) else None
    return not when or bool(row.get(when))


def _reference(evaluator: Similarity, row: Row) -> str:
    """The text that the output is compared to."""
    if evaluator.expected is None:
        return evaluator.text or ""
    if row.get(evaluator.expected) is None:
        field = f"evaluators[{evaluator.name}].expected"
        raise TemplateError(field, lacking(evaluator.expected, row))
    return as_text(row[evaluator.expected])


def _shown(evaluator: object, output: str) -> str:
    return enclosed(evaluator.template, output) if isinstance(evaluator, Judge) else output


def _criterion_names(step: Step) -> dict[str, Any]:
    if not isinstance(step.evaluator, Agent):
        return {}
    criteria = (step.criterion,) if step.criterion else step.evaluator.criteria
    names: dict[str, Any] = {"criteria": [each.model_dump() for each in criteria]}
    return names | {"criterion": names["criteria"][0]} if step.criterion else names


def _asked(model: str, text: str, params: Mapping[str, Any]) -> Call:
    return Call(model, [{"role": "user", "content": text}], params)


def _requested(spec: RunSpec, model: str, row: Row, *, as_responses: bool) -> Call:
    """The request that a row holds, sent to the run's model."""
    try:
        asked = read_request(row.get(URL_FIELD), row.get(str(spec.request_field)), as_responses=as_responses)
    except MalformedRequest as problem:
        words = f"the row's field {spec.request_field!r} holds no request: {problem}"
        raise TemplateError("request_field", words) from None
    if taken := operator_parameter(asked.params):
        raise TemplateError("request_field", f"the row's request sets {taken!r}, which connections alone say")
    return Call(model, asked.messages, {**spec.params, **asked.params}, inputs=asked.inputs)
