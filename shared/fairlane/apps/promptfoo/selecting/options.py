"""The options of ``fairlane eval`` that choose tests, prompts and providers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fairlane.apps.promptfoo.selecting.earlier import unpassed
from fairlane.apps.promptfoo.selecting.filters import Filters, metadata_of
from fairlane.core.errors import SubmissionError

_filter = partial(typer.Option, rich_help_panel="Only some of it")

_results = "File of results, of `fairlane eval -o FILE.jsonl` or promptfoo's own .json"

PatternOption = Annotated[str | None, _filter(metavar="REGEX", help="Tests whose description matches.")]
FirstOption = Annotated[
    int | None, _filter("--filter-first-n", "-n", metavar="N", min=1, help="The first N tests.")
]
RangeOption = Annotated[
    str | None, _filter(metavar="START:END", help="Tests by place, from 0, without the end: 10:20.")
]
SampleOption = Annotated[int | None, _filter(metavar="N", min=1, help="N tests at random.")]
SeedOption = Annotated[int | None, _filter(metavar="SEED", help="Makes --filter-sample repeatable.")]
PromptsOption = Annotated[str | None, _filter(metavar="REGEX", help="Prompts whose label matches.")]
ProvidersOption = Annotated[
    str | None,
    _filter(
        "--filter-providers", "--filter-targets", metavar="REGEX", help="Providers whose id or label matches."
    ),
]
MetadataOption = Annotated[
    list[str] | None, _filter(metavar="KEY=VALUE", help="Tests whose metadata has the value. Repeatable.")
]
FailingOption = Annotated[
    Path | None, _filter(metavar="FILE", help=f"Tests that did not pass or ended in an error. {_results}.")
]
FailingOnlyOption = Annotated[
    Path | None, _filter(metavar="FILE", help="Like --filter-failing, without errors.")
]
ErrorsOnlyOption = Annotated[
    Path | None, _filter(metavar="FILE", help="Like --filter-failing, errors alone.")
]


def filters_of(
    *,
    pattern: str | None,
    metadata: list[str] | None,
    first: int | None,
    places: str | None,
    sample: int | None,
    seed: int | None,
    prompts: str | None,
    providers: str | None,
    failing: Path | None,
    failing_only: Path | None,
    errors_only: Path | None,
) -> Filters:
    """What the options choose. Raises `SubmissionError`."""
    if seed is not None and sample is None:
        raise SubmissionError(
            "--filter-sample-seed", seed, "has no effect alone", "Give --filter-sample N, too."
        )
    if failing is not None and (failing_only or errors_only):
        remedy = "Give --filter-failing alone: it has both."
        raise SubmissionError("--filter-failing", str(failing), "has company", remedy)
    given = [unpassed(failing, "failing")] if failing else []
    given += [unpassed(failing_only, "failing-only")] if failing_only else []
    given += [unpassed(errors_only, "errors-only")] if errors_only else []
    return Filters(
        pattern=pattern,
        metadata=metadata_of(metadata or []),
        first=first,
        range=places,
        sample=sample,
        seed=seed,
        prompts=prompts,
        providers=providers,
        failing=[each for found in given for each in found] if given else None,
    )
