"""``fairlane eval``: a promptfoo configuration becomes runs, and their results a table of what passed."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlane.apps.promptfoo.evaluation import CliOptions, Evaluation, read_evaluation
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.reading.earlier import Which, unpassed
from fairlane.apps.promptfoo.reading.filters import Filters, metadata_of
from fairlane.apps.promptfoo.running import Runner
from fairlane.apps.promptfoo.scoring.tally import Tally
from fairlane.cli.failures import FAILED, MISUSED
from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import clip, complain, emit, print_line, print_table, say
from fairlane.cli.runs.conclusion import OPTION, FailingCommand, FailOnErrorOption
from fairlane.cli.runs.submitting.options import MaxConcurrentOption, OnRefusalOption
from fairlane.core.errors import SubmissionError, UnsupportedError
from fairlane.core.figures import be, counted, figure, percent
from fairlane.export.formats import export_records, format_of

app = typer.Typer()

SHOWN_FAILURES = 20
SHOWN_REASONS = 160
"""Characters of a failure's reasons."""


@dataclass(frozen=True, slots=True)
class Given:
    """Options: the configuration, the models and programs for it, and the output file."""

    file: Annotated[Path, typer.Argument(metavar="FILE")] = Path("promptfooconfig.yaml")
    """A promptfoo configuration."""

    map_provider: Annotated[list[str] | None, typer.Option(metavar="ID=MODEL")] = None
    """Which "<connection>:<model>" a provider's id means. Repeatable."""

    judge_model: Annotated[str | None, typer.Option(metavar="MODEL")] = None
    """Model that judges an llm-rubric that names no provider."""

    embedding_model: Annotated[str | None, typer.Option(metavar="MODEL")] = None
    """Model that makes embeddings where no provider is named for them."""

    no_programs: Annotated[bool, typer.Option("--no-programs")] = False
    """Refuse JavaScript and Python of the configuration."""

    python: Annotated[str | None, typer.Option(metavar="PATH")] = None
    """Interpreter of the configuration's Python; else this one."""

    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None
    """File for records: .jsonl, .csv or .parquet."""


_filter = partial(typer.Option, rich_help_panel="Only some of it")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options that choose tests, prompts and providers, as they are written."""

    filter_pattern: Annotated[str | None, _filter(metavar="REGEX")] = None
    """Tests whose description matches."""

    filter_metadata: Annotated[list[str] | None, _filter(metavar="KEY=VALUE")] = None
    """Tests whose metadata has the value. Repeatable."""

    filter_first_n: Annotated[int | None, _filter("--filter-first-n", "-n", metavar="N", min=1)] = None
    """The first N tests."""

    filter_range: Annotated[str | None, _filter(metavar="START:END")] = None
    """Tests by place, from 0, without the end: 10:20."""

    filter_sample: Annotated[int | None, _filter(metavar="N", min=1)] = None
    """N tests at random."""

    filter_sample_seed: Annotated[int | None, _filter(metavar="SEED")] = None
    """Makes --filter-sample repeatable."""

    filter_prompts: Annotated[str | None, _filter(metavar="REGEX")] = None
    """Prompts whose label matches."""

    filter_providers: Annotated[
        str | None, _filter("--filter-providers", "--filter-targets", metavar="REGEX")
    ] = None
    """Providers whose id or label matches."""

    filter_failing: Annotated[Path | None, _filter(metavar="FILE")] = None
    """Tests that did not pass or ended in an error. File of results, of `fairlane eval -o FILE.jsonl` or
    promptfoo's own .json."""

    filter_failing_only: Annotated[Path | None, _filter(metavar="FILE")] = None
    """Like --filter-failing, without errors."""

    filter_errors_only: Annotated[Path | None, _filter(metavar="FILE")] = None
    """Like --filter-failing, errors alone."""

    def filters(self) -> Filters:
        """What the options choose. Raises `SubmissionError`."""
        seed, failing = self.filter_sample_seed, self.filter_failing
        if seed is not None and self.filter_sample is None:
            raise SubmissionError(
                "--filter-sample-seed", seed, "has no effect alone", "Give --filter-sample N, too."
            )
        if failing is not None and (self.filter_failing_only or self.filter_errors_only):
            remedy = "Give --filter-failing alone: it has both."
            raise SubmissionError("--filter-failing", str(failing), "excludes the other two", remedy)
        files: tuple[tuple[Path | None, Which], ...] = (
            (failing, "failing"),
            (self.filter_failing_only, "failing-only"),
            (self.filter_errors_only, "errors-only"),
        )
        given = [unpassed(path, which) for path, which in files if path]
        return Filters(
            pattern=self.filter_pattern,
            metadata=metadata_of(self.filter_metadata or []),
            first=self.filter_first_n,
            range=self.filter_range,
            sample=self.filter_sample,
            seed=seed,
            prompts=self.filter_prompts,
            providers=self.filter_providers,
            failing=[each for found in given for each in found] if given else None,
        )


@app.command("eval", cls=FailingCommand)
@with_settings
def evaluate(
    invocation: Invocation,
    *,
    given: Given,
    max_concurrent: MaxConcurrentOption = None,
    on_refusal: OnRefusalOption = "fail",
    chosen: Chosen,
    check: Annotated[
        bool, typer.Option("--check", help="Print what would run, or what is not supported; run nothing.")
    ] = False,
    fail_on_error: FailOnErrorOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Run a promptfoo configuration and show what passed.

    If the configuration has anything that is not supported, this lists all of it, runs nothing, and ends
    with 2. It ends with 1 if an output did not pass, or more than --fail-on-error allows. JavaScript and
    Python of the configuration run here, in child processes, never on workers.
    """
    output = given.output
    if output is not None:
        format_of(output)
    provider_map, filters = _read_map(given.map_provider or []), chosen.filters()
    if check and as_json:
        raise typer.BadParameter("--check prints sentences: leave out --json")
    if filters.failing == []:
        say("no result of that file asks for another try: nothing was run")
        emit(_document(Tally(), ()), lambda: None, as_json=as_json)
        return
    with invocation.deployment() as deployment:
        cli_options = CliOptions(
            deployment.known_connections(),
            provider_map,
            given.judge_model,
            given.embedding_model,
            not given.no_programs,
            given.python,
            filters,
            hooks=not check,
        )
        with Programs(python=cli_options.python, allowed=cli_options.programs) as programs:
            evaluation = _read(given.file, cli_options, programs)
            if check:
                _describe(evaluation)
                return
            runner, tally = Runner(deployment, max_concurrent, on_refusal), Tally()
            records = runner.judged(evaluation, programs, tally)
            if output is not None:
                count = export_records(records, output)
                say(f"{counted(count, 'record')} {be(count)} in {output}")
            else:
                deque(records, maxlen=0)
        tally.derive(evaluation.derived)
    document = _document(tally, runner.ids)
    emit(document, lambda: _print(tally, document), as_json=as_json)
    broken = evaluation.results is not None and evaluation.results.failed
    if not (_enough_passed(tally, fail_on_error) and runner.completed) or broken:
        raise typer.Exit(FAILED)


def _enough_passed(tally: Tally, allowed: float) -> bool:
    """Whether at most the share ``allowed`` of all outputs did not pass. Says so otherwise."""
    enough = not tally.total or tally.unpassed / tally.total <= allowed
    if allowed and not enough:
        outputs = counted(tally.total, "output")
        say(f"{tally.unpassed:,} of {outputs} did not pass, more than {OPTION} allows ({allowed:.3g})")
    return enough


def _read_map(given: Sequence[str]) -> dict[str, str]:
    """``["id=connection:model"]`` as a dict. Raises `SubmissionError`."""
    found: dict[str, str] = {}
    for each in given:
        identity, separator, model = each.rpartition("=")
        if not (separator and identity.strip() and ":" in model):
            remedy = "Write --map-provider openai:chat:gpt-4o=openai:gpt-4o."
            raise SubmissionError("--map-provider", each, "is not ID=<connection>:<model>", remedy)
        found[identity.strip()] = model.strip()
    return found


def _read(file: Path, cli_options: CliOptions, programs: Programs) -> Evaluation:
    try:
        evaluation = read_evaluation(file, cli_options, programs)
    except UnsupportedError as error:
        for problem in error.problems:
            complain(str(problem))
        say(f"nothing was run: {len(error.problems)} of what {file.name} asks for cannot be done")
        raise typer.Exit(MISUSED) from error
    for note in evaluation.notes:
        say(note)
    return evaluation


def _describe(evaluation: Evaluation) -> None:
    for number, plan in enumerate(evaluation.runs, start=1):
        repetitions = plan.options.get("repetitions", 1)
        models = ", ".join(plan.labels.values())
        if plan.rows is None:
            rows, asked = len(evaluation.rows), len(plan.prompts)
            items = rows * asked * len(plan.labels) * repetitions
            what = f"{counted(rows, 'row')} × {counted(asked, 'prompt')}"
        else:
            items = len(plan.rows) * len(plan.labels) * repetitions
            what = counted(len(plan.rows), "request")
        print_line(f"run {number}: {what} × {models} × {repetitions} = {counted(items, 'item')}")


def _print(tally: Tally, document: Mapping[str, Any]) -> None:
    results = (
        each | {"pass_rate": f"{percent(each['pass_rate'])}%", "score": figure(each["score"], 3)}
        for each in document["results"]
    )
    heads = ("prompt", "provider", ">passed", ">failed", ">errors", ">pass rate", ">score")
    print_table(heads, (tuple(each.values()) for each in results))
    if document["metrics"]:
        metrics = sorted(document["metrics"], key=itemgetter("metric"))
        shares = (each | {"share": figure(each["share"], 3)} for each in metrics)
        print_line("")
        print_table(("metric", "prompt", "provider", ">share"), (tuple(each.values()) for each in shares))
    for failure in tally.failures[:SHOWN_FAILURES]:
        named = f" ({failure.description})" if failure.description else ""
        reasons = clip("; ".join(failure.reasons), SHOWN_REASONS)
        say(f"item {failure.item}{named}, {failure.cell.provider}: {reasons}")
    left = tally.unpassed - SHOWN_FAILURES
    if left > 0:
        say(f"and {left:,} more; --output FILE writes all")


def _document(tally: Tally, runs: Sequence[str]) -> dict[str, Any]:
    return {
        "runs": list(runs),
        "results": [
            {
                "prompt": cell.prompt,
                "provider": cell.provider,
                "passed": standing.outcomes["passed"],
                "failed": standing.outcomes["failed"],
                "errors": standing.outcomes["error"],
                "pass_rate": standing.pass_rate,
                "score": standing.mean_score,
            }
            for cell, standing in tally.standings.items()
        ],
        "metrics": [
            {
                "metric": metric,
                "prompt": cell.prompt,
                "provider": cell.provider,
                "share": score / weight if weight else 0.0,
            }
            for (metric, cell), (score, weight) in tally.metrics.items()
        ],
    }
