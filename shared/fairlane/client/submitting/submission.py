"""A submission: the spec that its arguments make, its rows in Redis, and the request to the scheduler.

If the application traces, a submission is a span in its trace. The run's spec carries the span's context, as
W3C ``traceparent``, so that workers continue the trace. This imports no OpenTelemetry: an application that
traces has loaded it.
"""

import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar, Unpack

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError
from redis.exceptions import RedisError

from fairlane.client.deployment import Deployment
from fairlane.client.outputs import Run
from fairlane.client.submitting.arguments import (
    EARLIER_TURNS,
    Path,
    as_submission_error,
    check_max_concurrent,
    only_argument,
    take_call_params,
    take_evaluators,
    take_function,
    take_models,
    take_order,
    take_params,
    take_task_prompts,
)
from fairlane.client.submitting.continuation import Origins
from fairlane.client.submitting.options import RunOptions, SubmitOptions
from fairlane.client.submitting.parameters import KNOWN
from fairlane.config.problems import did_you_mean
from fairlane.core.errors import InboxFull, RunLost, SubmissionError
from fairlane.datasets.rows import Paging
from fairlane.datasets.sessions import Numbering
from fairlane.datasets.values import scalar
from fairlane.model.choices import (
    MOST_NUMBER,
    MOST_SECONDS,
    MOST_USD,
    START_TIME_VERSION,
    TURN_FIELDS_VERSION,
    TURN_MESSAGES_VERSION,
)
from fairlane.model.decision import RetryPolicy
from fairlane.model.lane import FUNCTIONS, endpoint_id
from fairlane.model.run import Bounds, RunRef, RunSpec

PAGE_ROWS = 500
"""Rows of a page: a client holds one page of a dataset in memory. A page of long rows has fewer."""

MAX_JOBS = 100_000_000
"""Most jobs of a run: its bitmap of finished jobs then takes 12 MB."""

MOST_START_S = 30 * 86_400
"""Longest time in seconds that a run may wait for its start, since it stays in Redis."""

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: in ASCII order, none looks like another

T = TypeVar("T")

Mark: TypeAlias = Callable[[RunSpec], RunSpec]
"""Adds the trace of its submission to a spec."""

_SECONDS = f"Give seconds, more than 0 and at most {MOST_SECONDS:,.0f}."
_RATE = 'Give starts a second, 0 for no limit of the run, or "auto".'
_REMEDIES = {
    "name": "Give a text of at most 200 characters, none of them a control character.",
    "repetitions": "Give a whole number from 1 to 10,000.",
    "priority": 'Give a whole number from -100 (last) to 100 (first), or "interactive".',
    "timeout": "Give seconds, more than 0 and at most 86,400.",
    "prompts": "Give 1 to 100 prompts.",
    "models": "Give 1 to 100 models.",
    "max_concurrent": f"Give a whole number from 1 to {MOST_NUMBER:,}.",
    "ahead": f"Give a whole number of items, at most {MOST_NUMBER:,}; 0 removes the bound.",
    "task_rate": _RATE,
    "eval_rate": _RATE,
    "delay": "Give seconds, from 0 to 86,400.",
    "max_duration": _SECONDS,
    "max_outage": _SECONDS,
    "on_refusal": 'Give "fail" or "hold".',
    "budget_tokens": f"Give a whole number from 1 to {MOST_NUMBER:,}.",
    "budget_usd": f"Give dollars, more than 0 and at most {MOST_USD:,}.",
    "run_serially": "Give True, or the row field that marks items that run first.",
    "store_output_as": "Give a name, or a template for it.",
    "conversation": "Give the row field that turns of a conversation share.",
    "cache": 'Give "off", "read" or "read_write".',
    "cache_ttl": _SECONDS,
    "evaluators": "Give at most 50 evaluators, with finite numbers.",
    "retry": "Give RetryPolicy(max_attempts=3, …).",
}

_SECTIONS: Mapping[str, Mapping[str, str]] = {
    "bounds": {},
    "cache": {"mode": "cache", "ttl": "cache_ttl"},
    "order": {"serial_field": "run_serially", "conversation_field": "conversation"},
}
"""Parts of a spec, and the arguments that their fields come from where they have other names."""

_WITHOUT_EFFECT = {
    "output": ("prompt", "messages", "prompts", "request", "lane", "params"),
    "task": ("request",),
}
"""Arguments that nothing reads, by the one that says what runs the items."""
_ELSEWHERE = {
    **{name: f"give it as params={{{name!r}: …}}" for name in KNOWN},
    "max_retries": "give retry=RetryPolicy(max_attempts=…)",
    "run": "Fairlane names the run",
    "team": "a client submits for its own team: Client(team=…)",
}
"""Arguments that belong elsewhere."""


def build_spec(run: str, team: str, submitted_ms: int, /, **options: Unpack[RunOptions]) -> RunSpec:
    """The spec of a run without its rows. Raises `SubmissionError` for the first argument that is wrong.

    It has passed through JSON, so it equals the spec that the scheduler will read.
    """
    given: dict[str, Any] = {
        name: value if type(value).__module__ == "builtins" else scalar(value)
        for name, value in options.items()
        if value is not None
    }
    check_max_concurrent(given.get("max_concurrent"))
    unknown = sorted(set(given) - RunOptions.__annotations__.keys() - SubmitOptions.__annotations__.keys())
    if unknown:
        near = _ELSEWHERE.get(unknown[0]) or did_you_mean(
            unknown[0], ["prompt", *SubmitOptions.__annotations__]
        )
        raise TypeError(f"submit() got an unexpected keyword argument {unknown[0]!r}; {near}".rstrip("; "))
    if isinstance(given.get("name"), str) and not given["name"].strip():
        raise SubmissionError("name", given["name"], "is empty", "Give a name, or leave it out.")
    if "retry" in given and not isinstance(given["retry"], RetryPolicy):
        raise SubmissionError("retry", given["retry"], "is not a RetryPolicy", _REMEDIES["retry"])
    try:
        start = _start(given.get("start_in"), submitted_ms)
        fields: dict[str, Any] = {
            "run": run,
            "team": team,
            "name": given.get("name", run),
            **_task(given),
            "evaluators": take_evaluators(given.get("evaluators", ())),
            "session_field": given.get("session"),
            **{name: given[name] for name in ("repetitions", "timeout", "retry") if name in given},
            **_priority(given.get("priority", 0)),
            "bounds": {name: given[name] for name in Bounds.model_fields if name in given} | start,
            "cache": {field: given[name] for field, name in _SECTIONS["cache"].items() if name in given},
            "rows": 0,
            "page_rows": PAGE_ROWS,
            "short_results": True,
            "submitted_ms": submitted_ms,
        }
        fields["order"] = take_order(given, fields["prompts"])
        if start:
            fields["version"] = START_TIME_VERSION
        if fields["order"]["conversation"]:
            fields["version"] = TURN_FIELDS_VERSION
        if any(EARLIER_TURNS in prompt for prompt in fields["prompts"]):
            fields["version"] = TURN_MESSAGES_VERSION
        spec = RunSpec.model_validate(fields, strict=True)
        spec = RunSpec.model_validate_json(_as_json(spec))
    except ValidationError as error:
        raise as_submission_error(
            error, lambda field: _REMEDIES.get(field, ""), argument_of=_argument
        ) from None
    _check_levels(spec)
    return spec


def _argument(path: Path) -> Path:
    """The argument that a field of a spec comes from: ``("bounds", "delay")`` is ``("delay",)``."""
    section = _SECTIONS.get(str(path[0]))
    if section is None or len(path) == 1:
        return path
    field = str(path[1])
    return (section.get(field, field),)


def _start(start_in: object, submitted_ms: int) -> dict[str, Any]:
    """The bound ``start_ms`` for ``start_in`` seconds."""
    if start_in is None:
        return {}
    if (
        isinstance(start_in, bool)
        or not isinstance(start_in, int | float)
        or not 0 <= start_in <= MOST_START_S
    ):
        remedy = f"Give seconds, from 0 to {MOST_START_S:,}."
        raise SubmissionError("start_in", start_in, "is no time to wait", remedy)
    return {"start_ms": submitted_ms + round(start_in * 1000)}


def _priority(stated: object) -> dict[str, Any]:
    return {"interactive": True} if stated == "interactive" else {"priority": stated}


def _task(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec that define the task of a row."""
    field = only_argument({name: given.get(name) for name in ("model", "models", "task", "output")})
    for name in _WITHOUT_EFFECT.get(field, ()):
        if given.get(name):
            raise SubmissionError(
                name, given[name], f"has no effect beside {field}", "Leave one of them out."
            )
    common = {"lane": _lane(given.get("lane")), "params": take_params("params", given.get("params", {}))}
    if field == "output":
        return common | {"output_field": given["output"], "prompts": (), "models": ()}
    if field == "task":
        model = f"{FUNCTIONS}:{take_function(field, given['task'])}"
        return common | {"prompts": take_task_prompts([model], given), "models": (model,)}
    models = take_models(given.get("model"), given.get("models"))
    functions = all(model.startswith(f"{FUNCTIONS}:") for model in models)
    if not functions:
        take_call_params("params", common["params"])
    if not functions or "request" in given:
        only_argument({name: given.get(name) for name in ("prompt", "messages", "prompts", "request")})
    if "request" in given:
        return common | {"request_field": given["request"], "prompts": (), "models": models}
    return common | {"prompts": take_task_prompts(models, given), "models": models}


def _lane(stated: str | None) -> str | None:
    """A lane's name; for an endpoint's URL its host and port."""
    return endpoint_id(stated) if isinstance(stated, str) and "://" in stated else stated


def _check_levels(spec: RunSpec) -> None:
    if spec.session_evals and spec.session_field is None:
        name = spec.session_evals[0].evaluator.name
        problem = f"evaluator {name!r} scores sessions, but no row field identifies them"
        raise SubmissionError("session", None, problem, 'Give session="<field>".')
    if not spec.calls_tasks and not spec.evaluators:
        raise SubmissionError(
            "evaluators", (), "there is nothing to do", "Give an evaluator that scores the outputs."
        )


def bounded_pages(pages: Iterable[list[T]], spec: RunSpec) -> Iterator[list[T]]:
    """``pages`` as they are, until the run would have more than `MAX_JOBS` jobs. Raises `SubmissionError`."""
    a_row = spec.cells_per_row * (spec.steps + len(spec.session_evals))
    rows, most = 0, MAX_JOBS // a_row
    for page in pages:
        rows += len(page)
        if rows > most:
            problem = f"with {a_row} jobs a row there would be over {MAX_JOBS:,} jobs"
            raise SubmissionError("dataset", f"more than {most} rows", problem, "Split it into several runs.")
        yield page


def _as_json(spec: RunSpec) -> str:
    try:
        return spec.model_dump_json()
    except PydanticSerializationError as error:
        field = next(name for name in RunSpec.model_fields if not _dumps(spec, name))
        remedy = "Texts must be Unicode without lone surrogates."
        raise SubmissionError(field, getattr(spec, field), f"is not JSON: {error}", remedy) from None


def _dumps(spec: RunSpec, field: str) -> bool:
    try:
        spec.model_dump_json(include={field})
    except PydanticSerializationError:
        return False
    return True


def new_id(now_ms: int) -> str:
    """Fourteen characters: the time in milliseconds, so that ids sort by it, and 25 random bits."""
    number = (now_ms << 25) | secrets.randbits(25)
    return "".join(_DIGITS[(number >> shift) & 31] for shift in range(65, -1, -5))


def upload_and_submit(
    deployment: Deployment,
    spec: RunSpec,
    rows: Paging,
    origins: Origins | None = None,
) -> Run:
    """Upload the rows of a run and submit it; ``origins`` if it continues another.

    Raises `RunLost` if Redis has lost some of the rows by then, and `InboxFull`.
    """
    require_room(deployment, spec.team)
    outbox, ref = deployment.outbox, RunRef(spec.team, spec.run)
    taken, numbering = _with_checkpoints(bounded_pages(rows, spec), deployment.checkpoint), None
    if origins is not None:
        taken = origins.watch(taken)
    if spec.session_field is not None:
        numbering = Numbering(spec.session_field)
        taken = numbering.watch(taken)
    count, sessions = outbox.upload(ref, taken), 0
    if numbering is not None:
        outbox.note(ref, numbering.fields(rows.page_rows))
        sessions = numbering.sessions
    if origins is not None:
        outbox.note(ref, origins.fields(rows.page_rows))
    pages = -(-count // rows.page_rows)
    if missing := outbox.missing(ref, pages):
        outbox.discard(ref)
        raise RunLost(ref.run, f"{missing:,} of its {pages:,} pages of rows while they were uploaded")
    whole = spec.model_copy(update={"rows": count, "page_rows": rows.page_rows, "sessions": sessions})
    ask_to_start(deployment, whole)
    return Run(deployment, ref, whole)


def _with_checkpoints(pages: Iterable[T], checkpoint: Callable[[], object]) -> Iterator[T]:
    """Yield the pages and call ``checkpoint`` before each."""
    for page in pages:
        checkpoint()
        yield page


def require_room(deployment: Deployment, team: str) -> None:
    """Raise `InboxFull` while the team has as many waiting requests as it may."""
    most, waiting = deployment.settings.scheduler.limits.waiting_requests, deployment.outbox.waiting(team)
    if waiting >= most:
        raise InboxFull(team, waiting, most)


def ask_to_start(deployment: Deployment, spec: RunSpec) -> None:
    """Send the request for a run; where that fails, remove what was written."""
    outbox, ref = deployment.outbox, RunRef(spec.team, spec.run)
    try:
        outbox.submit(spec)
    except BaseException:
        # The request may have arrived although its answer did not: then there is something to cancel.
        with suppress(RedisError):
            outbox.discard(ref)
            outbox.cancel(ref)
        raise


@contextmanager
def submitting() -> Iterator[Mark]:
    """A span around a submission, if the application traces."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        yield lambda spec: spec.model_copy(update={"trace": None})
        return
    tracer = api.get_tracer("fairlane")
    with tracer.start_as_current_span("fairlane.submit", kind=api.SpanKind.PRODUCER) as span:

        def mark(spec: RunSpec) -> RunSpec:
            span.set_attribute("fairlane.run", spec.run)
            span.set_attribute("fairlane.team", spec.team)
            return spec.model_copy(update={"trace": _traceparent(span.get_span_context())})

        yield mark


def _traceparent(context: Any) -> str | None:
    """The span's context; ``None`` if it is not recorded."""
    if not (context.is_valid and context.trace_flags.sampled):
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
