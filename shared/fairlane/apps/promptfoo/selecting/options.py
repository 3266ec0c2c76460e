"""The options of ``fairlane eval`` that choose tests, prompts and providers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fairlane.apps.promptfoo.reading.filters import Filters, metadata_of
from fairlane.apps.promptfoo.selecting.earlier import Which, unpassed
from fairlane.core.errors import SubmissionError

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
        """The filters of these options. Raises `SubmissionError`."""
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
