"""What a team may ask for: the size of a run, and how many. More is refused, and the team is told why."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from fairlane.prompts import words_of
from fairlane.run import RunSpec
from fairlane.settings import PayloadLimits
from fairlane.store.keys import RunRef
from fairlane.store.runs import Runs
from fairlane_scheduler.backlog import Backlog

MOST_PAGES = 250_000
WEIGHED_AT_ONCE = 1000
TEMPLATE_WORDS = (
    10_000  # in the markup of all templates of a run: to compile them takes a second at the worst
)
TEMPLATE_CHARS = 2_000_000
REFUSED_KEPT = 1000  # of a team's refused runs; the oldest beyond them are forgotten


class Limits:
    """Checks raise ``ValueError`` with a message that names the setting.

    The rows of a run are weighed once, also where they come later: a client that changes a page afterwards
    is bounded by what a page may hold.
    """

    def __init__(self, runs: Runs, backlog: Backlog, limits: PayloadLimits) -> None:
        self._runs, self._backlog, self._limits = runs, backlog, limits
        self._active: Counter[str] | None = None
        self._weighed: dict[RunRef, tuple[int, int]] = {}
        self._refused: dict[str, deque[RunRef]] = {}

    @property
    def waiting_requests(self) -> int:
        """Requests of a team that may wait to be read."""
        return self._limits.waiting_requests

    @property
    def spec_bytes(self) -> int:
        """How long a spec may be."""
        return self._limits.spec_bytes

    def begin(self) -> None:
        """Count active runs anew when they are asked for."""
        self._active = None

    def count(self, ref: RunRef) -> None:
        """A run was admitted."""
        self._by_team()[ref.team] += 1

    def check_spec(self, ref: RunRef, text: bytes) -> None:
        """A spec that is not too long, of a team that has not too many runs."""
        if len(text) > self._limits.spec_bytes:
            most = f"at most {self._limits.spec_bytes:,} are allowed (scheduler.limits.spec_bytes)"
            raise ValueError(f"spec: the run has more bytes without its rows than that: {most}")
        active, most_runs = self._by_team()[ref.team], self._limits.active_runs
        if active >= most_runs and self._backlog.get(ref) is None:
            allowed = f"at most {most_runs:,} are allowed (scheduler.limits.active_runs)"
            raise ValueError(f"runs: team {ref.team} has {active:,} that are not finished, {allowed}")

    def check_templates(self, spec: RunSpec) -> None:
        """Templates that are compiled in a moment, all of them together."""
        words = chars = 0
        for text in _texts(spec.model_dump(include={"prompts", "models", "evaluators"})):
            found = words_of(text, TEMPLATE_WORDS - words)
            words, chars = words + found, chars + (len(text) if found else 0)
            if words > TEMPLATE_WORDS or chars > TEMPLATE_CHARS:
                raise ValueError(
                    "prompts: all templates of the run together may have "
                    f"{TEMPLATE_WORDS:,} words and signs in their markup and {TEMPLATE_CHARS:,} characters, "
                    "and have more: shorten them, or put their texts into the rows"
                )

    def check_rows(self, spec: RunSpec, rows: int) -> None:
        """The pages of so many rows, of a run that its client uploads."""
        if spec.source is not None:
            return
        ref, pages = RunRef(spec.team, spec.run), -(-rows // spec.page_rows)
        if pages > MOST_PAGES:
            raise ValueError(
                f"page_rows: {rows:,} rows are {pages:,} pages, at most {MOST_PAGES:,} are allowed"
            )
        first, total = self._weighed.get(ref, (0, 0)) if spec.open else (0, 0)
        last = 0
        while first < pages and total <= self._limits.run_bytes:
            some = range(first, min(first + WEIGHED_AT_ONCE, pages))
            sizes = self._runs.page_bytes(ref, some)
            first, total, last = some.stop, total + sum(sizes), sizes[-1]
        if total > self._limits.run_bytes:
            allowed = f"at most {self._limits.run_bytes:,} are allowed (scheduler.limits.run_bytes)"
            raise ValueError(f"rows: they take more bytes than that, compressed: {allowed}: split the run")
        if spec.open:
            whole = rows % spec.page_rows == 0  # a page that is not whole is weighed again
            self._weighed[ref] = (first, total) if whole or not last else (first - 1, total - last)

    def too_many_waiting(self, waiting: int) -> str:
        """What is told of a request that lies beyond those that are read."""
        allowed = f"at most {self._limits.waiting_requests:,} may (scheduler.limits.waiting_requests)"
        return f"inbox: {waiting:,} requests of the team wait, {allowed}: submit it again later"

    def note_refused(self, ref: RunRef) -> RunRef | None:
        """A run was refused; the one that is to be forgotten for it, if any."""
        kept = self._refused.setdefault(ref.team, deque())
        kept.append(ref)
        return kept.popleft() if len(kept) > REFUSED_KEPT else None

    def forget(self, ref: RunRef) -> None:
        """A run has ended."""
        self._weighed.pop(ref, None)

    def _by_team(self) -> Counter[str]:
        if self._active is None:
            self._active = Counter(run.ref.team for run in self._backlog.runs())
        return self._active


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
