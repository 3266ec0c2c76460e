"""Executes an evaluation: its runs, and those in which models grade their outputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlane.apps.promptfoo.answering import answers, as_called, unscored
from fairlane.apps.promptfoo.evaluation import Evaluation
from fairlane.apps.promptfoo.grading.questions import Calls
from fairlane.apps.promptfoo.planning.plans import PlannedRun
from fairlane.apps.promptfoo.planning.rows import PROMPT
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.scoring.scorer import Scorer
from fairlane.apps.promptfoo.scoring.tally import Cell, Tally, with_verdict
from fairlane.apps.promptfoo.scoring.verdicts import Verdict
from fairlane.cli.output import say
from fairlane.cli.runs.conclusion import say_held
from fairlane.cli.runs.run_views import ending
from fairlane.cli.runs.runs import wait_for
from fairlane.client.client import Client
from fairlane.client.deployment import Deployment
from fairlane.client.outputs import Run
from fairlane.client.submitting.options import SubmitOptions
from fairlane.model.record import Record
from fairlane.model.run import OnRefusal, RunState


@dataclass(frozen=True, slots=True)
class _Ended:
    """The run of a plan, if it needs workers, and the records that need none."""

    plan: PlannedRun
    run: Run | None
    ready: Sequence[Record]

    def records(self) -> Iterator[tuple[Record, PlannedRun]]:
        """Every record."""
        for record in self.run.results() if self.run is not None else ():
            yield (as_called(record) if self.plan.answers_here else record), self.plan
        for record in self.ready:
            yield record, self.plan


class Runner:
    """Runs evaluations in one deployment. ``most`` bounds the calls at a time of each run."""

    def __init__(self, deployment: Deployment, most: int | None, on_refusal: OnRefusal) -> None:
        self._deployment, self._most = deployment, most
        self._on_refusal: OnRefusal = on_refusal
        self.ids: list[str] = []
        self._ended: dict[str, RunState] = {}

    @property
    def completed(self) -> bool:
        """Whether all runs completed; cancelled and stopped runs did not."""
        return all(state is RunState.COMPLETED for state in self._ended.values())

    def judged(self, evaluation: Evaluation, programs: Programs, tally: Tally) -> Iterator[Record]:
        """The records of all runs with their verdicts, counted as they pass."""
        runs = self._run(evaluation, programs)
        common: SubmitOptions = {"name": f"{evaluation.name[:180]} (grading)"}
        if (concurrent := evaluation.common.get("max_concurrent")) is not None:
            common["max_concurrent"] = concurrent
        calls = Calls(common, self._graded, self._wait)
        hooks = evaluation.results

        def cell_of(record: Record, plan: PlannedRun) -> Cell:
            number = record.row.get(PROMPT, plan.prompts[record.prompt])
            return Cell(evaluation.prompts[number], plan.labels.get(record.model, record.model))

        def seen(record: Record, plan: PlannedRun, verdict: Verdict) -> None:
            if hooks is not None:
                hooks.see(cell_of(record, plan), record, verdict)

        scorer = Scorer(
            evaluation.texts, programs, calls, self._deployment.settings.prices, seen if hooks else None
        )
        records = ((record, plan) for outcome in runs for record, plan in outcome.records())
        for record, plan, verdict in scorer.verdicts(records):
            cell = cell_of(record, plan)
            added: Mapping[str, float] = {}
            if hooks is not None:
                verdict, added = hooks.conclude(cell, record, verdict)
            tally.add(cell, record, verdict)
            yield with_verdict(record, cell, verdict, added)
        if hooks is not None:
            hooks.end(evaluation.name, self.ids)

    def _run(self, evaluation: Evaluation, programs: Programs) -> list[_Ended]:
        """Submit all runs and wait for them; one after the other where calls at a time are bounded.

        Programs answer while the runs of models go on.
        """
        ended: list[_Ended] = []
        for plan in sorted(evaluation.runs, key=lambda plan: plan.answers_here):
            if plan.rows is not None and not plan.rows:
                continue
            rows = evaluation.rows if plan.rows is None else plan.rows
            ready: Sequence[Record] = ()
            if plan.answers_here:
                given = answers(plan, programs)
                rows, ready = given.rows, given.failed
                if not plan.options.get("evaluators"):
                    rows, ready = (), [*unscored(plan, given), *given.failed]
            run = self._submit(rows, plan.options) if rows else None
            if run is not None:
                say(f"run {run.id}: {', '.join(plan.labels.values())}")
                if plan.options.get("max_concurrent") is not None or self._most is not None:
                    self._wait(run)
            ended.append(_Ended(plan, run, ready))
        for each in ended:
            if each.run is not None:
                self._wait(each.run)
        return ended

    def _graded(self, rows: Sequence[Mapping[str, Any]], options: SubmitOptions) -> Run:
        run = self._submit(rows, options)
        say(f"run {run.id}: {len(rows):,} questions to {options.get('model', 'the model of embeddings')}")
        return run

    def _submit(self, rows: Sequence[Mapping[str, Any]], planned: SubmitOptions) -> Run:
        options = planned.copy()
        if isinstance(marked := options.get("run_serially"), str):
            rows = [
                {marked: False} | dict(row) for row in rows
            ]  # a run needs the field, even if no row is marked
        options["on_refusal"] = self._on_refusal
        if self._most is not None:
            options["max_concurrent"] = self._most
        run = Client.over(self._deployment).submit(rows, **options)
        self.ids.append(run.id)
        return run

    def _wait(self, run: Run) -> None:
        """Wait for a run's end, also while rejections hold it: what follows needs its results."""
        if run.id in self._ended:
            return
        status = wait_for(self._deployment, run)
        if not status.state.finished:
            say_held(status)
            status = run.wait(progress=True)
        self._ended[run.id] = status.state
        if status.state is not RunState.COMPLETED:
            say(f"run {run.id} {ending(status)}")
