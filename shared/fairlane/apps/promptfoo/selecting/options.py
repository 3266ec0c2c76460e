"""The options of ``fairlane eval`` that choose tests, prompts and providers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlane.apps.promptfoo.selecting.earlier import unpassed
from fairlane.apps.promptfoo.selecting.filters import Filters, metadata_of
from fairlane.core.errors import SubmissionError

PANEL = "Only some of it"

_results = "File of results, of `fairlane eval -o FILE.jsonl` or promptfoo's own .json"

PatternOption = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Tests whose description matches.", rich_help_panel=PANEL),
]
FirstOption = Annotated[
    int | None,
    typer.Option(
        "--filter-first-n", "-n", metavar="N", min=1, help="The first N tests.", rich_help_panel=PANEL
    ),
]
RangeOption = Annotated[
    str | None,
    typer.Option(
        metavar="START:END", help="Tests by place, from 0, without the end: 10:20.", rich_help_panel=PANEL
    ),
]
SampleOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="N tests at random.", rich_help_panel=PANEL)
]
SeedOption = Annotated[
    int | None,
    typer.Option(metavar="SEED", help="Makes --filter-sample repeatable.", rich_help_panel=PANEL),
]
PromptsOption = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Prompts whose label matches.", rich_help_panel=PANEL),
]
ProvidersOption = Annotated[
    str | None,
    typer.Option(
        "--filter-providers",
        "--filter-targets",
        metavar="REGEX",
        help="Providers whose id or label matches.",
        rich_help_panel=PANEL,
    ),
]
MetadataOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="Tests whose metadata has the value. Repeatable.", rich_help_panel=PANEL
    ),
]
FailingOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=f"Tests that did not pass or ended in an error. {_results}.",
        rich_help_panel=PANEL,
    ),
]
FailingOnlyOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Like --filter-failing, without errors.", rich_help_panel=PANEL),
]
ErrorsOnlyOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Like --filter-failing, errors alone.", rich_help_panel=PANEL),
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
