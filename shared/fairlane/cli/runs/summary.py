"""``fairlane summary``: a run's scores, failures, tokens and cost."""

from collections.abc import Iterator
from typing import Annotated

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import clip, emit, print_fields, print_line, print_table
from fairlane.cli.runs.conclusion import fails_if_refused
from fairlane.cli.runs.run_views import states_in_words
from fairlane.cli.runs.selection import LATEST, RunArgument, RunCommand, find_ended, find_run
from fairlane.client.views.summary import Spending, Summary
from fairlane.core.figures import counted, dollars, figure, latency
from fairlane.model.run_status import RoleTime, Scores

app = typer.Typer()

FAILURES_SHOWN = 10
LONGEST_ERROR = 160
HINT = "--so-far sums up the items that have ended, without waiting"


@app.command(cls=RunCommand)
@with_settings
def summary(
    invocation: Invocation,
    run: RunArgument = LATEST,
    so_far: Annotated[
        bool, typer.Option("--so-far", help="Sum up the items that have ended, and wait for no other.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Sum up a run: scores with their standard errors, failures, tokens, cost; waits for its end.

    The prices in the settings give the cost. Ends with 1 if the run was refused.
    """
    with invocation.deployment() as deployment:
        found = find_run(deployment, run) if so_far else find_ended(deployment, run, HINT)
        with fails_if_refused():
            summed = found.summary(so_far=so_far)
    emit(summed.to_dict(), lambda: print_summary(summed), as_json=as_json)


def print_summary(summary: Summary) -> None:
    """Print the run, then tables of scores, tokens and failures, if there are any."""
    print_fields(_fields(summary))
    if summary.scores:
        columns = ["evaluator", "model", ">count", ">missing", ">mean", ">± s.e.", ">min", ">max"]
        print_table(columns, _scores(summary), apart=True)
    if summary.session_scores:
        columns = ["evaluator of sessions", ">count", ">missing", ">mean", ">± s.e.", ">min", ">max"]
        rows = ((name, *_numbers(each)) for name, each in summary.session_scores.items())
        print_table(columns, rows, apart=True)
    if summary.tasks or summary.evaluations:
        columns = ["role", "model", ">calls", ">input", ">cached", ">output", ">cost"]
        spending = (*_spending("task", summary.tasks), *_spending("evaluation", summary.evaluations))
        print_table(columns, spending, apart=True)
    if summary.failures:
        shown = summary.failures[:FAILURES_SHOWN]
        failures = (
            (f"{each.count:,}", each.step, each.item, clip(" ".join(each.error.split()), LONGEST_ERROR))
            for each in shown
        )
        print_table([">failed", "step", ">first item", "error"], failures, apart=True)
        if len(summary.failures) > len(shown):
            print_line(f"and {len(summary.failures) - len(shown):,} more kinds of failure (--json has them)")


def _fields(summary: Summary) -> Iterator[tuple[str, object]]:
    yield "run", summary.run
    yield "name", None if summary.name == summary.run else summary.name
    yield "state", summary.state
    counts = states_in_words(summary.by_state)
    yield "items", f"{summary.items:,}" + (f": {counts}" if counts else "")
    yield "cached", f"{counted(summary.cached, 'output')} from the cache" if summary.cached else None
    for model, endings in summary.endings.items():
        yield "outputs", f"{endings.in_words()} ({model})"
    for asked, names in summary.served.items():
        yield "answered by", f"{', '.join(names)} ({asked})"
    yield "tokens", f"{summary.task_tokens:,} of tasks, {summary.evaluation_tokens:,} of evaluations"
    yield "predict", _time(summary.predict)
    yield "score", _time(summary.score)
    if summary.cost_usd is not None:
        yield "cost", dollars(summary.cost_usd) + (f", {summary.gaps}" if summary.gaps else "")
    elif summary.unreported:
        yield "cost", f"not known: {summary.gaps}"
    yield "not kept", f"{summary.waste}; included above" if summary.waste else None


def _time(time: RoleTime | None) -> str | None:
    """How many calls, and their mean times."""
    if time is None:
        return None
    waiting, calling = (latency(each * 1000 / time.calls) for each in (time.waiting_s, time.calling_s))
    return f"{counted(time.calls, 'call')}: on average {waiting} waiting, {calling} calling"


def _scores(summary: Summary) -> Iterator[tuple[object, ...]]:
    several = len(summary.scores_by_model) > 1
    for name, scores in summary.scores.items():
        yield name, "all" if several else next(iter(summary.scores_by_model), ""), *_numbers(scores)
        for model, found in sorted(summary.scores_by_model.items()) if several else ():
            if name in found:
                yield "", model, *_numbers(found[name])


def _numbers(scores: Scores) -> tuple[str, ...]:
    values = (scores.mean, scores.standard_error, scores.minimum, scores.maximum)
    return scores.of_rows, f"{scores.missing:,}", *map(figure, values)


def _spending(role: str, found: tuple[Spending, ...]) -> Iterator[tuple[object, ...]]:
    for each in found:
        tokens = (each.input_tokens, each.cached_tokens, each.output_tokens)
        yield role, each.model, f"{each.calls:,}", *(f"{n:,}" for n in tokens), dollars(each.cost_usd)
