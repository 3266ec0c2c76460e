"""Checks a submission before anything is written: models against connections, templates on first rows."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property, partial
from itertools import chain, islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from fairlane.client.deployment import Deployment
from fairlane.client.submitting.arguments import is_constant, model_field
from fairlane.client.submitting.parameters import (
    ROLES,
    check_braces,
    check_chats,
    check_names_of_fields,
    check_protocol,
    check_request,
    check_requests,
    check_sent,
    check_shown,
)
from fairlane.config.connections.connection import WITHOUT_EMBEDDINGS
from fairlane.config.problems import did_you_mean
from fairlane.config.settings import Settings
from fairlane.core.errors import MissingExtra, SubmissionError, TemplateError
from fairlane.core.version import __version__
from fairlane.datasets.lines import other_separator
from fairlane.datasets.references import open_reference
from fairlane.datasets.row_json import FIELD
from fairlane.model.choices import CONVERSATION, Source
from fairlane.model.evaluators import Agent, EvaluatorSpec, Judge, Similarity
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import Cell, Plan, RunSpec, most_chars
from fairlane.model.steps import Step
from fairlane.pipeline.rendering import Rendering
from fairlane.store.connection.connect import if_allowed
from fairlane.store.write.workers import WorkerInfo
from fairlane.why.surroundings import lacking

Row = Mapping[str, Any]

FIRST_ROWS = 100
"""Rows that are tried. A field that only later rows have is rare, and ``check=False`` is for it."""

SENT_ANYWAY = "If later rows are different, submit with check=False (--no-check)."
FIELDS_SHOWN = 8

LISTED = 8
"""Models that an error names."""

_GIVEN = frozenset({"output", "criterion", "criteria", "session"})
"""What an evaluator's template reads beside the row, and cannot be tried before there are outputs."""


def checked_rows(
    spec: RunSpec,
    rows: Iterator[dict[str, Any]],
    settings: Settings,
    source: object,
    more: Callable[[Sequence[str]], None] = lambda models: None,
) -> Iterator[dict[str, Any]]:
    """``rows`` as they are, once the first of them suit the run: see `check_rows`.

    Raises `SubmissionError` also at a later row whose request no answer can fulfil.
    """
    first = list(islice(rows, FIRST_ROWS))
    check_rows(spec, first, settings, source, more)
    return chain(first, _answerable(spec, rows))


def _answerable(spec: RunSpec, later: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(later, start=FIRST_ROWS + 1):
        check_request(spec, row, number)
        yield row


def check_rows(
    spec: RunSpec,
    first: Sequence[Row],
    settings: Settings,
    source: object = None,
    more: Callable[[Sequence[str]], None] = lambda models: None,
) -> None:
    """Check that a run's first rows suit it, and the ``settings`` of the deployment.

    ``source`` is what the user gave as dataset; ``more`` is called with the models that the rows name. Raises
    `SubmissionError` if there is no row, or for a template or an evaluator that finds its fields in no row.
    """
    shown = fspath(source) if isinstance(source, str | PathLike) else None
    if not first:
        remedy = "Give at least one row; check=False (--no-check) submits a run without items."
        raise SubmissionError(FIELD, shown or [], "has no rows", remedy)
    _check_separator(first[0], shown)
    row_bytes, answer_bytes = settings.scheduler.limits.row_bytes, settings.worker.max_response_bytes
    asked, shown_chars = most_chars(row_bytes), most_chars(row_bytes, answer_bytes)
    _Trial(Plan(spec=spec, prompt_chars=asked, judged_chars=shown_chars), first).check()
    more(_models(spec, first))


def check_reference(
    spec: RunSpec,
    source: Source,
    settings: Settings,
    more: Callable[[Sequence[str]], None] = lambda models: None,
) -> None:
    """`check_rows` for a dataset that the scheduler reads, where its file is on this machine, too.

    A URL is not opened: that may need the scheduler's credentials, and take long.
    """
    path = Path(source.url.removeprefix("file://"))
    if "://" not in str(path) and path.is_file() and os.access(path, os.R_OK):
        with suppress(MissingExtra):
            check_rows(spec, list(islice(open_reference(source), FIRST_ROWS)), settings, path, more)


def _check_separator(row: Row, path: str | None) -> None:
    """Refuse a CSV file that was read as one column, since another character than a comma separates its
    fields.
    """
    if path is None or not path.lower().endswith(".csv") or len(row) != 1:
        return
    if (found := other_separator(*row)) is not None:
        raise SubmissionError(FIELD, path, str(found), found.remedy)


class _Trial:
    """The run's templates and evaluators over its first rows."""

    def __init__(self, plan: Plan, rows: Sequence[Row]) -> None:
        self._spec, self._rows, self._rendering = plan.spec, rows, Rendering(plan)
        self._fields = list(dict.fromkeys(chain.from_iterable(rows)))

    def check(self) -> None:
        """Raise `SubmissionError` for the first template or evaluator that fails on every row."""
        spec = self._spec
        named = {
            "output": spec.output_field,
            "request": spec.request_field,
            "run_serially": spec.order.serial_field,
        }
        conversation = spec.order.conversation_field
        named["session" if conversation == spec.session_field else "conversation"] = conversation
        for argument, field in named.items():
            if field is not None:
                self._require(argument, field, self._rows)
        if spec.request_field is not None:
            check_requests(spec, self._rows, self._all, SENT_ANYWAY)
        for number, model in enumerate(spec.models):
            cell = Cell(row=0, prompt=0, model=number, repetition=0)
            self._try(model_field(spec.models, number), model, partial(self._model, cell), self._rows)
        lists = any(isinstance(value, list) for row in self._rows for value in row.values())
        for number, prompt in enumerate(spec.prompts):
            if len(self._rows) > 1:
                check_braces(self._prompt(number), prompt, self._fields)
            if lists or any(each.role not in ROLES or each.content.lstrip()[:1] == "[" for each in prompt):
                check_chats(self._prompt(number), prompt, self._rows)
        stores = spec.order.store_output_as is not None
        stored = self._stored() if stores else None
        late = stores and spec.order.serial_field is not None  # later rows may run first
        for number, prompt in enumerate(() if late else spec.prompts):
            text = prompt[0].content if len(prompt) == 1 else [message.content for message in prompt]
            self._try(self._prompt(number), text, partial(self._task, number), self._rows, stored)
        for evaluator in spec.evaluators:
            self._evaluator(evaluator)

    def _task(self, prompt: int, row: Row) -> None:
        """Render the task of a row that no item precedes."""
        memory: Row | None = {CONVERSATION: []} if self._spec.order.conversation else None
        self._rendering.task(Cell(row=0, prompt=prompt, model=0, repetition=0), row, memory)

    def _stored(self) -> frozenset[str] | None:
        """The names under which items can store their outputs for later ones.

        An item stores one if its prompt can be rendered. ``None`` if none can: then nothing is ever stored.
        """
        names = set[str]()
        for row in self._rows:
            for prompt in range(len(self._spec.prompts)):
                with suppress(TemplateError, ValueError):
                    self._task(prompt, row)
                    names.add(self._rendering.register(row))
        return frozenset(names - {""}) or None

    def _model(self, cell: Cell, row: Row) -> None:
        try:
            self._rendering.model(cell, row)
        except TemplateError:
            raise
        except ValueError as error:
            raise TemplateError("model", str(error)) from error

    def _prompt(self, number: int) -> str:
        if len(self._spec.prompts) > 1:
            return f"prompts[{number}]"
        return "messages" if len(self._spec.prompts[number]) > 1 else "prompt"

    def _evaluator(self, evaluator: EvaluatorSpec) -> None:
        """Try an evaluator on the rows that it scores, which may be none of the first."""
        field, rows = f"evaluators[{evaluator.name!r}]", self._rows
        if (when := getattr(evaluator, "when", None)) is not None:
            rows = [row for row in rows if row.get(when)]
        if rows and (expected := getattr(evaluator, "expected", None)) is not None:
            self._require(f"{field}.expected", expected, rows)
        if not isinstance(evaluator, Judge | Agent):
            return
        field, template = f"{field}.template", evaluator.template
        for step in [each for each in self._spec.evals if each.evaluator is evaluator][:1]:
            self._try(field, template, partial(self._rendering.evaluation, step, output=""), rows, _GIVEN)
        for step in [each for each in self._spec.session_evals if each.evaluator is evaluator]:
            self._try(field, template, partial(self._session, step), rows, _GIVEN)
        check_shown(field, evaluator, self._spec.output_field)

    def _session(self, step: Step, row: Row) -> None:
        self._rendering.session(step, [{"row": dict(row), "output": ""}])

    def _try(
        self,
        field: str,
        template: object,
        render: Callable[[Row], object],
        rows: Sequence[Row],
        names: frozenset[str] | None = None,
    ) -> None:
        """Raise `SubmissionError` if ``render`` fails for each of the rows.

        With ``names``, only a missing variable that is none of these is a failure.
        """
        failed: TemplateError | None = None
        for row in rows:
            try:
                render(row)
            except TemplateError as error:
                if names is not None and (error.variable is None or error.variable in names):
                    return
                failed = failed or error
            else:
                return
        if failed is None:
            return
        check_names_of_fields(field, template, self._fields)
        if failed.variable is not None and failed.variable.lstrip("-").isdigit():
            first = f"A first item has no earlier turns: {{% if {CONVERSATION} %}} … {{% endif %}}. "
            remedy = (first if CONVERSATION in str(template) else "") + SENT_ANYWAY
            raise SubmissionError(field, template, "reads a place of a list that is empty there", remedy)
        if failed.variable is not None:
            raise self._missing(field, failed.variable)
        problem = f"cannot be rendered with any of {self._all}: {str(failed).partition(': ')[2]}"
        raise SubmissionError(field, template, problem, f"Correct the template or the rows. {SENT_ANYWAY}")

    def _require(self, argument: str, field: str, rows: Sequence[Row]) -> None:
        if not any(row.get(field) is not None for row in rows):
            raise self._missing(argument, field)

    def _missing(self, argument: str, name: str) -> SubmissionError:
        more = ", …" if len(self._fields) > FIELDS_SHOWN else ""
        known = ", ".join(self._fields[:FIELDS_SHOWN]) + more or "no fields"
        remedy = "" if name in self._fields else _suggested(name, self._fields)
        if argument.startswith(("prompt", "messages")) and self._spec.order.store_output_as is not None:
            remedy += f"Before the first item nothing is stored: {{{{ {name} | default('') }}}}. "
        what = "value in this field" if name in self._fields else "field of this name"
        problem = (
            f"the only row has no {what}" if len(self._rows) == 1 else f"none of {self._all} has a {what}"
        )
        return SubmissionError(argument, name, problem, f"{remedy}The rows have {known}. {SENT_ANYWAY}")

    @property
    def _all(self) -> str:
        count = len(self._rows)
        return f"the {count} rows" if count < FIRST_ROWS else f"the first {count} rows"


def _suggested(name: str, known: Sequence[str]) -> str:
    """``"Did you mean …? "``; empty where nothing is like ``name``."""
    near = did_you_mean(name, known)
    return f"{near[:1].upper()}{near[1:]} " if near else ""


def _models(spec: RunSpec, rows: Iterable[Row]) -> list[str]:
    """The models that templates name in these rows."""
    rendering, found = Rendering(Plan(spec=spec)), dict[str, None]()
    for number, model in enumerate(spec.models):
        if is_constant(model):
            continue
        cell = Cell(row=0, prompt=0, model=number, repetition=0)
        for row in rows:
            try:
                found[rendering.model(cell, row)] = None
            except (TemplateError, ValueError):
                continue
    return list(found)


def check_connections(spec: RunSpec, known: Iterable[str]) -> None:
    """Refuse a model or judge whose connection is not among ``known``. Raises `SubmissionError`."""
    names = sorted(known)
    for field, model in _named_models(spec):
        connection = model.partition(":")[0].strip()
        if not is_constant(connection) or connection in (FUNCTIONS, *names):
            continue
        listed = f"Known connections: {', '.join(names)}" if names else "None is configured"
        remedy = _suggested(connection, names).rstrip() or listed
        raise SubmissionError(field, model, f"there is no connection {connection!r}", remedy)


def _named_models(spec: RunSpec, *, tasks: bool = True) -> list[tuple[str, str]]:
    """The models of ``tasks`` and evaluators, each with the argument that names it."""
    models = spec.models if tasks else ()
    named = [(model_field(spec.models, number), model) for number, model in enumerate(models)]
    for step in (*spec.evals, *spec.session_evals):
        named.append((f"evaluators[{step.evaluator.name!r}].model", step.model))
    return named


def _asked(spec: RunSpec, *, tasks: bool) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The parameters of tasks and evaluators, each with their argument and a model that gets them."""
    for model in spec.models if tasks else ():
        yield "params", spec.params, model
    for each in spec.evaluators:
        if isinstance(each, Judge | Agent):
            yield f"evaluators[{each.name!r}].params", each.params, each.model


class Offers:
    """The models that a deployment's connections list now, and whether workers have their keys."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment, self._directory = deployment, deployment.directory()

    def check(self, spec: RunSpec, *, tasks: bool = True) -> None:
        """Check the models of ``tasks`` and evaluators that are no templates. Raises `SubmissionError`."""
        for field, model in _named_models(spec, tasks=tasks):
            if is_constant(model):
                self._check(field, model)
        for field, params, model in _asked(spec, tasks=tasks):
            if params and is_constant(model):
                connection = model.partition(":")[0].strip()
                check_protocol(field, params, self._directory.protocol_of(connection) or "")
                stated = self._deployment.settings.connections.get(connection)
                check_sent(field, params, connection, stated.endpoint if stated else None)
        for each in spec.evaluators:
            if isinstance(each, Similarity):
                self._check_embeddings(each)

    def check_rendered(self, models: Iterable[str]) -> None:
        """Check models that rows name: raises `SubmissionError` if none of them can be called."""
        problems = []
        for model in models:
            try:
                self._check("model", model)
            except SubmissionError as error:
                problems.append(error)
            else:
                return
        if problems:
            raise problems[0]

    def _check(self, field: str, model: str) -> None:
        connection, _, name = (part.strip() for part in model.partition(":"))
        if connection == FUNCTIONS:
            return
        listed = self._directory.models_of(connection)
        if listed and not any(fnmatchcase(name, pattern) for pattern in listed):
            known = ", ".join(listed[:LISTED]) + (", …" if len(listed) > LISTED else "")
            problem = f"connection {connection!r} does not list this model"
            raise SubmissionError(field, model, problem, f"{_suggested(name, listed)}It lists {known}.")
        if self._directory.needs_key(connection) and self._lack(connection):
            lack = lacking(connection, self._workers)
            if lack is not None:
                raise SubmissionError(field, model, f"no worker serves it: {lack.problem}", f"{lack.remedy}.")
            stated = self._deployment.settings.connections.get(connection)
            place = stated.needed_key if stated else None
            unknown = (
                "Set the variable that its api_key_env names where workers start, and start them anew, "
                "or let their user read the file of its api_key_file"
            )
            remedy = f"{place.remedy if place else unknown}; `fairlane doctor` shows keys."
            raise SubmissionError(field, model, f"no worker has the key of {connection!r}", remedy)

    def _check_embeddings(self, evaluator: Similarity) -> None:
        protocol = self._directory.protocol_of(evaluator.model.partition(":")[0].strip())
        if protocol in WITHOUT_EMBEDDINGS:
            field = f"evaluators[{evaluator.name!r}].model"
            problem = f"connections of protocol {protocol!r} make no embeddings"
            remedy = "Name one of protocol openai, openai_responses, azure_openai, gemini or ollama."
            raise SubmissionError(field, evaluator.model, problem, remedy)

    def _lack(self, connection: str) -> bool:
        """Whether there are workers, and none has the connection's key. Unknown workers may have it."""
        known = [info for info in self._workers if info.version == __version__]
        return bool(known) and not any(
            info.version != __version__ or connection in info.credentials for info in self._workers
        )

    @cached_property
    def _workers(self) -> Sequence[WorkerInfo]:
        """The live workers; none where this user may not read them."""
        beats = if_allowed(self._deployment.beats, None) or ()
        oldest = self._deployment.now_ms() - self._deployment.settings.scheduler.worker_timeout_seconds * 1000
        return [beat.info for beat in beats if beat.beat_ms >= oldest and not beat.info.stopping]
