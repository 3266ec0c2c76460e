"""A handle on a submitted run: status, wait, pause, resume, cancel, and its records as they are read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from fairlane.client.deployment import (
    LONGEST_WAIT_S,
    SHORTEST_WAIT_S,
    Blocking,
    Deployment,
    Pace,
    Resumable,
    Steps,
    Wait,
    finish,
)
from fairlane.client.following.chunks import Chunk, ChunkSubscription
from fairlane.client.following.progress import FailSafeView, draw, open_progress
from fairlane.client.following.records import (
    Place,
    Records,
    RunCloser,
    SubmissionWatch,
    refusal,
    require_spec,
)
from fairlane.client.following.standstill import HeldDetector, Standstill
from fairlane.client.handles import Unsent, check_timeout
from fairlane.core.errors import FairlaneError, RunTimeout
from fairlane.evaluators.client_side import ClientScorer, check_client_scorers
from fairlane.model.record import Record
from fairlane.model.run import RunRef, RunSpec, RunState
from fairlane.model.run_status import RunStatus
from fairlane.model.sessions import SessionRecord
from fairlane.store.write.audit import operator
from fairlane.why.waiting import Waiting

T = TypeVar("T")


class Ended(NamedTuple):
    """A run that is over: its status, what was submitted, and its records, each to be read once."""

    status: RunStatus
    spec: RunSpec
    records: Records
    items: Iterator[Record]


class RunHandle(Unsent):
    """A submitted run: its state, and its records as they are read. `Run` adds what is made of them."""

    def __init__(
        self,
        deployment: Deployment,
        ref: RunRef,
        spec: RunSpec | None,
        scorers: Sequence[ClientScorer] = (),
        closer: RunCloser | None = None,
    ) -> None:
        """Made by `Client`. ``spec`` is ``None`` where it cannot be read, as a refused run's may be."""
        self._closer = closer
        self._deployment, self._ref, self._spec, self._scorers = deployment, ref, spec, tuple(scorers)

    @property
    def id(self) -> str:
        """The run's id within its team; later runs have greater ids."""
        return self._ref.run

    @property
    def team(self) -> str:
        """The team that submitted the run."""
        return self._ref.team

    @property
    def name(self) -> str:
        """The name it was given, else its id."""
        return self._spec.name if self._spec else self.id

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of its calls; empty where they cannot be read."""
        return self._spec.params if self._spec else {}

    @property
    def serial(self) -> bool:
        """Whether its items go one at a time, as they must where a prompt reads what came before."""
        return self._spec is not None and self._spec.one_at_a_time

    def __repr__(self) -> str:
        return f"<Run {self.id} of team {self.team}: {self.name}>"

    def _repr_html_(self) -> str:
        """The run as it stands now, for a notebook."""
        from fairlane.client.views.html import run_html

        return run_html(f"Run {self.id} of team {self.team}: {self.name}", self.status)

    def with_scorers(self, *scorers: ClientScorer) -> Self:
        """The same run, whose records this handle also scores by these: see `scorer`.

        Raises `SubmissionError` for two scores of one name.
        """
        together = (*self._scorers, *scorers)
        check_client_scorers(together, self._spec.evaluators if self._spec else ())
        return type(self)(self._deployment, self._ref, self._spec, together, self._closer)

    def status(self) -> RunStatus:
        """How the run stands now. Raises `RunNotFound` once it has expired, `StoreUnavailable`."""
        with self._deployment.answering():
            return self._look()

    def wait(
        self, timeout: float | None = None, *, progress: bool = False, until_held: bool = False
    ) -> RunStatus:
        """Block until the run has finished (completed, cancelled or refused) and return its status.

        ``progress`` shows it on standard error, or below a notebook's cell, with the reason after two seconds
        without progress. With ``until_held`` it also returns once all unfinished jobs of a run with
        ``on_refusal="hold"`` wait for `resume`; its state is then "running". Raises `RunTimeout` after
        ``timeout`` seconds, and `StoreUnavailable` if Redis stays away for an hour, or for a minute before
        the first answer: these do not stop the run. Raises `SubmissionError` for a ``timeout`` that is no
        number. Raises `RunLost` if Redis has lost the submission, so that the run never starts.
        """
        return finish(self._waiting(progress, timeout, until_held=until_held), self._deployment.waiter)

    def _waiting(
        self, progress: bool = False, timeout: float | None = None, *, until_held: bool = False
    ) -> Steps[RunStatus]:
        """The steps of `wait`."""
        check_timeout(timeout)
        with open_progress(self._deployment.clock) if progress else nullcontext() as view:
            return (
                yield from self._ending(view, timeout, HeldDetector(self.is_held) if until_held else None)
            )

    def cancel(self) -> None:
        """Ask the scheduler to cancel the run, and return at once; `wait` returns once it is cancelled.

        Aborts calls in flight and keeps finished jobs. A finished run stays as it is.
        """
        with self._deployment.answering():
            self._deployment.outbox.cancel(self._ref)

    def pause(self) -> None:
        """Ask the scheduler to start no further call of the run, and return at once; `status` has the time.

        Calls in flight end normally, and no job fails. The run's ``max_duration`` keeps counting.
        `resume` resumes it, `cancel` also works meanwhile. A finished run stays as it is.
        """
        with self._deployment.answering():
            self._deployment.outbox.pause(self._ref, operator())

    def resume(self) -> None:
        """Ask the scheduler to resume the paused run, and return at once.

        Models that rejected the run's first calls alike are tried again with five more.
        """
        with self._deployment.answering():
            self._deployment.outbox.resume(self._ref, operator())

    def why(self, item: int | None = None, step: int | str | None = None) -> Waiting:
        """Explain what the run, one of its items or a step of an item waits for, and when it starts.

        Step 0 is the item's task, step k its k-th judge, by number or name; by default the first unfinished
        step. Raises `TargetNotFound`, also once the run has expired.
        """
        asked = [str(part) for part in (item, step) if part is not None]
        with self._deployment.answering():
            return self._deployment.explainer(self.team).why("/".join([self.id, *asked]))

    def results(self) -> Iterator[Record]:
        """Every item's record, in item order. Waits for the run to be over first.

        Holds a few hundred records at a time. Raises `SubmissionError` with the reason if the run was
        refused.
        """
        return Blocking(self._results(), self._deployment.waiter)

    def _results(self) -> Iterator[Record | Wait]:
        """The steps of `results`."""
        read = partial(Records.item_steps, place=Place())
        return self._scored(Resumable(partial(self._after_end, read)))

    def _after_end(self, read: Callable[[Records], Iterator[T | Wait]]) -> Iterator[T | Wait]:
        """The steps that wait for the run's end, and then those of ``read``."""
        status = yield from self._ending()
        yield from read(self._records(status))

    def sessions(self) -> Iterator[SessionRecord]:
        """Every session's record, by first appearance of the sessions. Waits for the run to be over.

        Yields none where the run has no session field. Raises what `results` does.
        """
        return Blocking(self._sessions(), self._deployment.waiter)

    def _sessions(self) -> Iterator[SessionRecord | Wait]:
        """The steps of `sessions`."""
        read = partial(Records.session_steps, place=Place())
        return Resumable(partial(self._after_end, read))

    def stream(self) -> Iterator[Record]:
        """Every item's record once, in the order in which they end; waits for the next one.

        On a cancelled run the items that were not over come last, in item order. Raises `SubmissionError`
        with the reason if the run was refused.
        """
        return Blocking(self._stream(), self._deployment.waiter)

    def _stream(self) -> Iterator[Record | Wait]:
        """The steps of `stream`."""
        place = Place()
        return self._scored(Resumable(lambda: self._records(self.status()).finish_steps(place)))

    def _scored(self, steps: Iterator[Record | Wait]) -> Iterator[Record | Wait]:
        """Add the scores of the client's scorers to the records, and report them to Redis in the end."""
        if not self._scorers:
            return steps
        from fairlane.client.following.scoring import Scoring

        items_per_row = self._spec.cells_per_row if self._spec else 1
        scoring = Scoring(steps, self._scorers, self._deployment, self._ref, items_per_row)
        return Resumable(scoring.steps)

    def chunks(self) -> Iterator[Chunk]:
        """Pieces of streamed output, from now until the run is over.

        Each names its item and attempt. An attempt that is repeated starts its text again: a chunk that is
        ``void`` says to drop the earlier one's. Chunks published while Redis is away are lost; `results` and
        `stream` have the whole outputs.
        """
        listening = self._subscription()
        listening.open()
        return Blocking(listening, self._deployment.waiter)

    def _subscription(self) -> ChunkSubscription:
        """The steps of `chunks`."""
        steps = self._spec.steps if self._spec else 1
        return ChunkSubscription(self._deployment, self._ref, steps, lambda: self._look().state.finished)

    def _look(self) -> RunStatus:
        if self._spec is None:
            return self._deployment.runs.overview(self._ref).status
        return self._deployment.runs.status(self._ref, self._spec)

    def is_held(self) -> bool:
        """Whether all unfinished jobs wait for `resume`, since a model rejected the run's first calls."""
        if self._spec is None or self._spec.bounds.on_refusal != "hold":
            return False
        waiting = [part for part in self.why().lanes if part.waits or part.in_flight]
        return bool(waiting) and all(part.constraint == "request_refused" for part in waiting)

    def _ending(
        self,
        view: FailSafeView | None = None,
        timeout: float | None = None,
        held: HeldDetector | None = None,
    ) -> Steps[RunStatus]:
        clock, patience, pace = self._deployment.clock, self._deployment.patience(self.id), Pace()
        started_ms, submission = clock.monotonic_ms(), None
        standstill = Standstill(clock, self._ask_why) if view is not None else None
        while True:
            status = patience.ask(self._look)
            if status is not None and status.state is RunState.SUBMITTED:
                submission = submission or SubmissionWatch(self._deployment, self._ref)
                submission.check()
            elif status is not None and self._closer is not None and not status.state.finished:
                self._closer.check()
            if view is not None and standstill is not None:
                draw(view, status, patience.silence_s, standstill)
            if status is not None and (status.state.finished or (held is not None and held.check(status))):
                return status
            pause = pace.next_s(_longest_pause(status))
            if timeout is not None:
                left = timeout - (clock.monotonic_ms() - started_ms) / 1000
                if left <= 0:
                    raise RunTimeout(self.id, timeout)
                pause = min(pause, left)
            yield Wait(pause)

    def _ask_why(self) -> Waiting | None:
        """What the run waits for; ``None`` where that is unknown now."""
        try:
            return self.why()
        except FairlaneError:
            return None

    def _ended(self) -> Ended:
        status = self.wait()
        spec, records = self._readable(status), self._records(status)
        items = Blocking(self._scored(records.item_steps()), self._deployment.waiter)
        return Ended(status, spec, records, items)

    def _by_now(self) -> Ended:
        status = self.status()
        if status.state.finished:
            return self._ended()
        spec, records = self._readable(status), self._records(status)
        return Ended(status, spec, records, Blocking(records.steps_by_now(), self._deployment.waiter))

    def _records(self, status: RunStatus) -> Records:
        return Records(self._deployment, self._readable(status), self._closer)

    @property
    def spec(self) -> RunSpec | None:
        """The submitted spec, without its rows; ``None`` where it cannot be read."""
        return self._spec

    def _readable(self, status: RunStatus) -> RunSpec:
        if status.state is RunState.REFUSED:
            raise refusal(status)
        return require_spec(self.id, self._spec)


def _longest_pause(status: RunStatus | None) -> float:
    """Look often when the run may end at any moment: everything that is left is in flight."""
    if status and status.state is RunState.RUNNING and status.in_flight >= status.jobs - status.jobs_done:
        return SHORTEST_WAIT_S
    return LONGEST_WAIT_S
