"""Validates submitted runs and their size, resolves their lanes, and admits or rejects each."""

import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from redis.exceptions import RedisError

from fairlane.config import sections
from fairlane.config.settings import Settings
from fairlane.core.errors import FairlaneError
from fairlane.core.events import Event
from fairlane.core.section import first_flaw
from fairlane.datasets.references import lies_in
from fairlane.evaluators.builders import check_names
from fairlane.model.choices import SPEC_VERSION
from fairlane.model.run import Plan, RunRef, RunSpec, most_chars
from fairlane.pipeline.rendering import Rendering
from fairlane.sandbox.pool import Pool
from fairlane.store.write.runs.runs import Fields, Runs, bounds_of, check_prices
from fairlane.telemetry.logs import get_logger
from fairlane.templates.template import Template, words_of
from fairlane_scheduler.intake.template_check import LOOK_MS, RequestAwaited, TemplateCheck
from fairlane_scheduler.lanes.registry import LaneRegistry
from fairlane_scheduler.state.backlog import ActiveRun, Backlog, Measured
from fairlane_scheduler.state.server_time import Moment

MOST_JOBS = 100_000_000  # a run's bitmap of finished jobs then takes 12 MB
MOST_PAGES = 250_000
PAGES_MEASURED_AT_ONCE = 1000  # some 10 ms; all pages at once could take seconds, longer than the lease
NEXT_PAGES_MS = 1  # until the next pages are measured, so that other work comes between

# Words in the markup of all templates of a run: compiling so many takes a second at worst.
TEMPLATE_WORDS = 10_000
TEMPLATE_CHARS = 2_000_000

# Values of a spec, outside its texts: reading so many takes some 50 ms of a tick.
SPEC_VALUES = 50_000

REJECTED_KEPT = 1000  # rejected runs kept for a team; the oldest beyond them are deleted
REASON_CHARS = 500

SHORT_MS, SHORT_TRIES = 5_000, 12  # a scheduler that is short of memory tries a run for a minute

_JSON_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
"""A JSON string, also one that the document's end cuts off. Its quantifiers are possessive, so that a hostile
document is read once. With backtracking, 4 MiB of quotes would take hours."""

log = get_logger("receiver")


class PayloadLimits:
    """Limits what a team may submit: the size of a run, and how many runs.

    Each check raises ``ValueError`` with a message that names the setting. Each page is measured once, also
    pages of an open run. A client that changes a page afterwards is bounded by the largest size of a page.
    """

    def __init__(self, runs: Runs, backlog: Backlog, limits: sections.PayloadLimits) -> None:
        self._runs = runs
        self._backlog = backlog
        self._limits = limits
        self._active: Counter[str] | None = None
        self._measuring: dict[str, Measured] = {}  # by team: runs that are not admitted
        self._rejected: dict[str, deque[RunRef]] = {}

    def begin(self) -> None:
        """Count active runs again when a check needs them."""
        self._active = None

    def count(self, ref: RunRef) -> None:
        """Count an admitted run."""
        self._by_team()[ref.team] += 1

    def check_spec(self, ref: RunRef, text: bytes) -> None:
        """Check the size of a spec, and how many active runs its team has."""
        if len(text) > self._limits.spec_bytes:
            most = f"at most {self._limits.spec_bytes:,} are allowed (scheduler.limits.spec_bytes)"
            raise ValueError(f"spec: the run has more bytes without its rows than that: {most}")
        if values_of(text) > SPEC_VALUES:
            problem = f"spec: the run without its rows has more than {SPEC_VALUES:,} values"
            raise ValueError(f"{problem}: put them into the rows")
        active, most_runs = self._by_team()[ref.team], self._limits.active_runs
        if active >= most_runs and self._backlog.get(ref) is None:
            allowed = f"at most {most_runs:,} are allowed (scheduler.limits.active_runs)"
            raise ValueError(f"runs: team {ref.team} has {active:,} that are not finished, {allowed}")

    def check_templates(self, spec: RunSpec) -> None:
        """Check that all templates of a run together compile quickly."""
        words = chars = 0
        for text in _texts(spec.model_dump(include={"prompts", "models", "evaluators"})):
            found = words_of(text, TEMPLATE_WORDS - words)
            words, chars = words + found, chars + (len(text) if found else 0)
            if words > TEMPLATE_WORDS or chars > TEMPLATE_CHARS:
                raise ValueError(
                    "prompts: all templates of the run together may have "
                    f"{TEMPLATE_WORDS:,} words and signs in their markup and {TEMPLATE_CHARS:,} characters, "
                    "and have more. Shorten them, or put their texts into the rows"
                )

    def check_rows(self, spec: RunSpec, rows: int) -> int:
        """Check the size of a client's pages; returns how many are missing (0 for an open run).
        Raises `RequestAwaited` until all are measured, some at a time.
        """
        if spec.source is not None:
            return 0
        ref, pages = RunRef(spec.team, spec.run), -(-rows // spec.page_rows)
        check_pages(spec, rows)
        measured = self._measured_of(ref)
        some = range(measured.first, min(measured.first + PAGES_MEASURED_AT_ONCE, pages))
        sizes = self._runs.page_bytes(ref, some) if some else []
        measured.first += len(sizes)
        measured.total, measured.missing = measured.total + sum(sizes), measured.missing + sizes.count(0)
        if measured.total > self._limits.run_bytes:
            self._measuring.pop(ref.team, None)
            allowed = f"at most {self._limits.run_bytes:,} are allowed (scheduler.limits.run_bytes)"
            raise ValueError(f"rows: they take more bytes than that, compressed: {allowed}: split the run")
        if measured.first < pages:
            raise RequestAwaited(NEXT_PAGES_MS)
        if not spec.open:
            self._measuring.pop(ref.team, None)
            return measured.missing
        if rows % spec.page_rows and sizes and sizes[-1]:  # a page that is not full is measured again
            measured.first, measured.total = measured.first - 1, measured.total - sizes[-1]
        return 0

    def _measured_of(self, ref: RunRef) -> Measured:
        """A run's measurement. An active run has its own; of its other runs, a team has one at a time."""
        if (run := self._backlog.get(ref)) is not None:
            return run.measured
        if (measured := self._measuring.get(ref.team)) is None or measured.ref != ref:
            measured = self._measuring[ref.team] = Measured(ref)
        return measured

    def note_rejected(self, ref: RunRef) -> RunRef | None:
        """Count a rejected run; returns the oldest one if its team now has too many."""
        kept = self._rejected.setdefault(ref.team, deque())
        kept.append(ref)
        return kept.popleft() if len(kept) > REJECTED_KEPT else None

    def _by_team(self) -> Counter[str]:
        if self._active is None:
            self._active = Counter(run.ref.team for run in self._backlog.runs())
        return self._active


def values_of(text: bytes) -> int:
    """The most values that a JSON document may have, without parsing it.

    Counts commas and brackets outside strings; an unterminated string counts as none. Linear in ``text``.
    """
    bare = _JSON_TEXT.sub(_unended, text)
    return sum(bare.count(sign) for sign in (b",", b"[", b"{"))


def _unended(found: re.Match[bytes]) -> bytes:
    """Remove a whole string; keep an unterminated one."""
    return b"" if found[1] else found[0]


def check_jobs(spec: RunSpec, rows: int) -> None:
    """Raises ``ValueError`` if so many rows make more jobs than a run may have."""
    jobs = rows * spec.cells_per_row * spec.steps + spec.session_jobs
    if jobs > MOST_JOBS:
        raise ValueError(f"rows: the run has {jobs:,} jobs, at most {MOST_JOBS:,} are allowed: split it")


def check_pages(spec: RunSpec, rows: int) -> None:
    """Raises ``ValueError`` if so many rows make more pages than a run may have."""
    pages = -(-rows // spec.page_rows)
    if pages > MOST_PAGES:
        raise ValueError(f"page_rows: {rows:,} rows are {pages:,} pages, at most {MOST_PAGES:,} are allowed")


def check_source(spec: RunSpec, allowed: Sequence[str]) -> None:
    """Raises ``ValueError`` if a run refers to a dataset outside the folders and URLs that are allowed."""
    if spec.source is None:
        return
    if not spec.open:
        raise ValueError("source: a run whose rows the scheduler reads is open at first")
    url = spec.source.url
    if not any(lies_in(url, place) for place in allowed):
        remedy = "the operator names the places in scheduler.datasets"
        raise ValueError(f"dataset: {url!r} does not lie where this deployment reads datasets; {remedy}")


def _texts(value: Any) -> Iterator[str]:
    """All strings in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


class Admission:
    """Turns a stored spec into an active run, or into a rejected one with a reason."""

    def __init__(
        self,
        runs: Runs,
        backlog: Backlog,
        lanes: LaneRegistry,
        limits: PayloadLimits,
        settings: Settings,
        pool: Pool | None = None,
    ) -> None:
        """``pool``: compiles templates; without one they are compiled at once."""
        self._runs = runs
        self._backlog = backlog
        self._lanes = lanes
        self._limits = limits
        self._settings = settings.scheduler
        self._prices = settings.prices
        self._pool = pool
        row_bytes = settings.scheduler.limits.row_bytes
        self._prompt_chars = most_chars(row_bytes)
        self._judged_chars = most_chars(row_bytes, settings.worker.max_response_bytes)
        self._checks: dict[str, TemplateCheck] = {}  # by team: each compiles those of one run at a time
        self._short: dict[
            str, tuple[RunRef, int]
        ] = {}  # by team: its latest run that lacked memory, and tries
        self._tooled = tuple(name for name, each in settings.connections.items() if each.tooled)
        self._unstructured = tuple(
            name for name, each in settings.connections.items() if not (each.structured or each.tooled)
        )
        self._responses = tuple(name for name, each in settings.connections.items() if each.takes_responses)

    def forget_all(self) -> None:
        """Cancel the template checks of an earlier term."""
        for check in self._checks.values():
            check.drop()
        self._checks.clear()

    def begin_tick(self) -> None:
        """Count active runs again when the limits need them."""
        self._limits.begin()

    def submit(self, ref: RunRef, moment: Moment) -> bool | None:
        """Admit a submitted run, or reject it. Returns whether it is admitted; ``None``: gone or decided.

        Raises Redis' errors, and `RequestAwaited`: the caller tries again in a later tick, also after
        a ``MemoryError``, which the next run may not meet; `SHORT_TRIES` of one run reject it.
        """
        try:
            plan = self._checked(ref) if ref.team in self._checks else None
            if plan is None:
                text = self._runs.spec_text(ref, self._settings.limits.spec_bytes)
                if text is None:
                    return None
                self._limits.check_spec(ref, text)
                plan = self._plan(ref, text)
        except (RedisError, OSError, RequestAwaited):
            raise
        except Exception as error:
            if not isinstance(error, (FairlaneError, ValueError)):
                log.exception(Event.SPEC_UNREADABLE, run=ref.run, team=ref.team)
            if isinstance(error, MemoryError) and self._is_short(ref):
                raise RequestAwaited(SHORT_MS) from error
            return self._reject(ref, _readable(error), moment)
        for lane in (*plan.eval_lanes, *plan.session_lanes):
            self._lanes.ensure(lane)
        bounds = bounds_of(plan, self._prices, self._settings.max_concurrent)
        admitted = self._runs.admit(plan, moment.epoch, moment.argument, bounds=bounds)
        if admitted:
            _log_admitted(plan, bounds)
        if admitted == 1:
            self._limits.count(ref)
            self._backlog.add_run(ActiveRun(ref, plan, started_ms=moment.server_ms))
        return True if admitted else None

    def _is_short(self, ref: RunRef) -> bool:
        """Count a run's failures in a row for want of memory; false at the last of them."""
        short, tries = self._short.get(ref.team, (ref, 0))
        self._short[ref.team] = ref, tries + 1 if short == ref else 1
        return self._short[ref.team][1] < SHORT_TRIES

    def _reject(self, ref: RunRef, reason: str, moment: Moment) -> bool | None:
        if not self._runs.refuse(ref, reason, moment.server_ms, moment.epoch, moment.argument):
            return None
        log.warning(Event.RUN_REFUSED, run=ref.run, team=ref.team, reason=reason)
        if oldest := self._limits.note_rejected(ref):
            self._runs.forget_refused(oldest, moment.epoch, moment.argument)
        return False

    def _checked(self, ref: RunRef) -> Plan | None:
        """The plan of a run whose templates compile; ``None`` if no child was asked to compile them."""
        check = self._checks[ref.team]
        if not check.concerns(ref):
            self._checks.pop(ref.team).drop()
            return None
        if wait_ms := check.wait_ms():
            raise RequestAwaited(wait_ms)
        del self._checks[ref.team]
        return check.result()

    def _plan(self, ref: RunRef, text: bytes) -> Plan:
        """The plan of a valid spec. Raises ``ValueError`` or `FairlaneError` with a message for its team, and
        `RequestAwaited` if a child compiles its templates now.
        """
        spec = _read_spec(ref, text)
        if spec.continued is not None:
            self._runs.require_here(spec.continued)
        check_jobs(spec, spec.rows)
        check_prices(spec, self._prices)
        missing = self._limits.check_rows(spec, spec.rows)
        check_source(spec, self._settings.datasets)
        if spec.open and spec.order.serial_field is not None:
            raise ValueError("open: items that go first need all rows at the start")
        self._limits.check_templates(spec)
        if spec.evaluators:
            check_names(spec.evaluators)
        if spec.session_evals and (spec.session_field is None or spec.open):
            raise ValueError(
                "evaluators: session evaluations need a session field, and all rows at the start"
            )
        for number, model in enumerate(spec.models):
            template = Template(f"models[{number}]", model, checked=True)
            if template.constant:
                self._lanes.lane_of(template.render({}).strip(), spec.lane, spec.team)
        plan = Plan(
            spec=spec.admitted,
            eval_lanes=tuple(self._lanes.lane_of(each.model, each.lane, spec.team) for each in spec.evals),
            session_lanes=tuple(
                self._lanes.lane_of(each.model, each.lane, spec.team) for each in spec.session_evals
            ),
            unstructured=self._unstructured,
            tooled=self._tooled,
            responses=self._responses,
            prompt_chars=self._prompt_chars,
            judged_chars=self._judged_chars,
        )
        rendering = Rendering(plan, checked=self._pool is not None)
        if missing and not spec.open:
            raise ValueError(
                f"rows: {missing:,} of {-(-spec.rows // spec.page_rows):,} pages are missing, as Redis may "
                "lose its last second when it restarts: submit the run again"
            )
        if self._pool is not None and (markup := rendering.markup()):
            self._checks[ref.team] = TemplateCheck(self._pool, plan, markup)
            raise RequestAwaited(LOOK_MS)
        return plan


class _Versioned(BaseModel):
    """The only field that is read before the spec's version is known."""

    model_config = ConfigDict(extra="ignore")

    version: int = 1


def _read_spec(ref: RunRef, text: bytes) -> RunSpec:
    version = _Versioned.model_validate_json(text).version
    if version > SPEC_VERSION:
        raise ValueError(
            f"version: the spec has {version}, this scheduler reads {SPEC_VERSION}: upgrade the schedulers"
        )
    spec = RunSpec.read(text)
    if (spec.team, spec.run) != (ref.team, ref.run):
        raise ValueError(f"the spec names run {spec.team}/{spec.run}, it was submitted as {ref}")
    return spec


def _log_admitted(plan: Plan, bounds: Fields) -> None:
    spec = plan.spec
    log.info(
        Event.RUN_ADMITTED,
        run=spec.run,
        team=spec.team,
        items=spec.items,
        jobs=spec.jobs,
        serial=spec.one_at_a_time,
        max_concurrent=bounds.get("max_concurrent"),
        cap=bounds.get("cap"),
    )


def _readable(error: Exception) -> str:
    """An error as one short line."""
    if isinstance(error, ValidationError):
        where, _, problem = first_flaw(error)
        text = f"{where}: {problem}"
    else:
        text = str(error) or type(error).__name__
    return text[:REASON_CHARS].encode(errors="replace").decode()
