"""Runs teams' templates and evaluators in child processes. A tick asks for results and never waits."""

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from fairlane.core.errors import CutOff, NoChild
from fairlane.core.events import Event
from fairlane.model.run import RunRef
from fairlane.sandbox.pieces import CompleteTask, EvaluationDigests, RenderCall
from fairlane.sandbox.pool import Pool
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.state.backlog import ActiveRun

log = get_logger("feeder")

ItemPiece = RenderCall | EvaluationDigests | CompleteTask
_Key = tuple[RunRef, int, type[ItemPiece]]


class WorkAwaited(Exception):
    """A child process still works on an item; a later tick asks again.

    ``new``: this call has submitted it.
    """

    def __init__(self, *, new: bool) -> None:
        super().__init__()
        self.new = new


class ChildWork:
    """The pieces of items that are to be fed next, by run, item and kind."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._asked: dict[_Key, Future[Any]] = {}
        self._noted: set[_Key] = set()
        self.cut_off = Counter[RunRef]()
        """By run, how many pieces exceeded a limit."""

    def is_asked(self, ref: RunRef, item: int, kind: type[ItemPiece]) -> bool:
        """Whether such a piece of an item was given to a child."""
        return (ref, item, kind) in self._asked

    def result(self, run: ActiveRun, piece: ItemPiece) -> Any:
        """The result of a piece of an item; submits it to a child first, unless one has it.

        Raises `WorkAwaited` until it is done, then what the piece raised, `CutOff` or `NoChild`.
        """
        key = (run.ref, piece.item, type(piece))
        future = self._asked.get(key)
        if future is None:
            future = self._pool.submit(run.ref.team, piece, run.plan)
            if not future.done():  # else the team's queue is full, and a later tick submits it again
                self._asked[key] = future
            raise WorkAwaited(new=True)
        if not future.done():
            raise WorkAwaited(new=False)
        try:
            return future.result()
        except CutOff as error:
            self._note(key, error)
            raise
        except NoChild:
            del self._asked[key]  # the run is tried again later
            raise

    def drop(self, ref: RunRef, items: Iterable[int]) -> None:
        """Forget the pieces of items that are placed."""
        for item in items:
            for kind in (RenderCall, EvaluationDigests, CompleteTask):
                self._asked.pop((ref, item, kind), None)
                self._noted.discard((ref, item, kind))

    def forget(self, ref: RunRef) -> None:
        """Forget a run that has ended."""
        for key in [key for key in self._asked if key[0] == ref]:
            self._asked.pop(key).cancel()
            self._noted.discard(key)
        self.cut_off.pop(ref, None)

    def _note(self, key: _Key, error: CutOff) -> None:
        if key in self._noted:
            return
        self._noted.add(key)
        ref = key[0]
        self.cut_off[ref] += 1
        log.warning(Event.WORK_CUT_OFF, run=ref.run, team=ref.team, what=error.what, reason=str(error))
