"""Where items go: rendered, each is queued on its lane, or recorded at once because nobody need be called."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from fairlane.errors import TemplateError
from fairlane.job import Success
from fairlane.joining import joined
from fairlane.memory import recalled, remembered
from fairlane.rendering import Rendering
from fairlane.store.attempts import Over, Ready
from fairlane.store.entry import Entry
from fairlane.store.keys import RunRef
from fairlane.store.runs import Runs
from fairlane.verdict import Ended, Place, follow, following, invalid, task_over
from fairlane_scheduler.backlog import ActiveRun
from fairlane_scheduler.drafts import Draft, Stretch
from fairlane_scheduler.lane_registry import LaneRegistry, UnknownModel
from fairlane_scheduler.precedents import Precedents
from fairlane_scheduler.row_pages import RowPages, UnreadableRow
from fairlane_scheduler.seats import Seats

RUNS_KEPT = 256


class Placement:
    """Renders items just far enough to know their lane and their size."""

    def __init__(self, runs: Runs, lanes: LaneRegistry, most_row_bytes: int) -> None:
        self._runs, self._lanes = runs, lanes
        self._pages = RowPages(runs, most_row_bytes)
        self._seats = Seats(runs)
        self._precedents = Precedents(runs)
        self._renderings: OrderedDict[RunRef, Rendering] = OrderedDict()

    def place(self, run: ActiveRun, upto: int, enough: Callable[[], bool]) -> tuple[Stretch, int]:
        """Place items from the cursor on until ``upto`` or ``enough``; returns where it stopped."""
        stretch, drafts, position = Stretch(), list[Draft](), run.cursor
        memory = self._runs.memory(run.ref) if run.plan.spec.order.remembers else {}
        while position < upto and not (position > run.cursor and enough()):
            turn, item = divmod(position, max(1, run.items))
            position += 1
            draft = self._draft(run, item, turn, memory, stretch)
            if draft is not None:
                drafts.append(draft)
                if run.serial:
                    break
        self._settle(run, drafts, stretch)
        return stretch, position

    def forget(self, ref: RunRef) -> None:
        """A run has ended."""
        self._renderings.pop(ref, None)
        self._pages.forget(ref)
        self._seats.forget(ref)
        self._precedents.forget(ref)

    def _draft(
        self, run: ActiveRun, item: int, turn: int, memory: Mapping[bytes, bytes], stretch: Stretch
    ) -> Draft | None:
        """An item to be handed out; ``None`` where it is invalid, or goes with another turn."""
        spec, model = run.plan.spec, None
        rendering = self._rendering(run)
        place = Place.of(rendering, item, {})
        try:
            row = self._pages.row(run.ref, spec, place.cell.row)
            if spec.order.serial_field is not None and bool(row.get(spec.order.serial_field)) != (turn == 0):
                return None
            place = Place(rendering, item, place.cell, row)
            if spec.output_field is not None:
                return Draft(place, output=_given(row.get(spec.output_field), spec.output_field))
            model = rendering.model(place.cell, row)
            lane = self._lanes.lane_of(model, spec.lane)
            names = recalled(rendering, place.cell, row, memory) if memory or spec.order.remembers else None
            return Draft(place, lane, rendering.task(place.cell, row, names))
        except (TemplateError, UnknownModel, UnreadableRow) as error:
            stretch.over.extend(invalid(place, str(error), model))
            self._join(run, place, None, stretch)
            stretch.handed += 1
            return None

    def _settle(self, run: ActiveRun, drafts: list[Draft], stretch: Stretch) -> None:
        """Queue what is to be called; record what is given, cached or was done by an earlier run."""
        known = self._precedents.tasks(run, drafts)
        for draft in drafts:
            stretch.handed += 1
            spec, item = run.plan.spec, draft.place.item
            ended = known.get(item)
            if draft.output is not None:
                ended = Ended(Success(draft.output))
            if ended is not None:
                self._record(run, draft, ended, stretch)
            elif draft.call is not None:
                entry = Entry(item * spec.steps, draft.call.tokens, draft.place.cell.model)
                stretch.entries.setdefault(draft.lane, []).append(entry)
        stretch.over.sort(key=lambda over: over.job)

    def _record(self, run: ActiveRun, draft: Draft, ended: Ended, stretch: Stretch) -> None:
        """An item whose task is over: its evaluations are queued behind fresh items."""
        place, output = draft.place, ended.answer.output if ended.answer else None
        steps: tuple[Ready | Over, ...] = ()
        if output is not None:
            after = following(place, output)
            steps = follow(place, after, output, self._precedents.evaluations(run, place, after))
            self._remember(run, draft, output, stretch)
        verdict = task_over(place, ended, steps)
        if draft.output is not None:
            stretch.over.append(Over(place.job(0), "given", verdict.payload, ""))
        else:
            stretch.over.append(Over(place.job(0), verdict.state, verdict.payload, ""))
        for step in verdict.follow:
            if isinstance(step, Ready):
                stretch.entries.setdefault(step.lane, []).append(step.entry)
            else:
                stretch.over.append(step)
        if not any(isinstance(step, Ready) for step in steps):
            self._join(run, place, output, stretch)

    def _remember(self, run: ActiveRun, draft: Draft, output: str, stretch: Stretch) -> None:
        """What later items read of one that nobody was called for."""
        place = draft.place
        if run.plan.spec.order.remembers and draft.call is not None:
            stored = self._runs.memory(run.ref)
            stretch.memory |= remembered(place.rendering, place.cell, place.row, draft.call, output, stored)

    def _join(self, run: ActiveRun, place: Place, output: str | None, stretch: Stretch) -> None:
        """An item is over: its session is told."""
        told = joined(place, self._seats.of(run.ref, run.plan.spec, place.cell.row), output)
        if told is not None:
            stretch.joined[place.item] = told

    def _rendering(self, run: ActiveRun) -> Rendering:
        found = self._renderings.get(run.ref)
        if found is None:
            found = self._renderings[run.ref] = Rendering(run.plan)
            while len(self._renderings) > RUNS_KEPT:
                self._renderings.popitem(last=False)
        self._renderings.move_to_end(run.ref)
        return found


def _given(value: object, field: str) -> str:
    if value is None:
        raise UnreadableRow(f"the row has no output in its field {field!r}")
    return value if isinstance(value, str) else str(value)
