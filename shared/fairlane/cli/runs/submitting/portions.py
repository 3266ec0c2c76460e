"""A part of a dataset: the first rows, or some at random."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlane.datasets.rows import read_rows

LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="Take the first N rows only.")
]
SampleOption = Annotated[
    int | None,
    typer.Option("--sample", metavar="N", min=1, help="Take N rows at random, in the dataset's order."),
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", help="Chooses the --sample: the same seed takes the same rows.")
]

Row = dict[str, Any]


def portion_of(
    dataset: Path | Iterator[Row], limit: int | None, sample: int | None, seed: int
) -> Path | Iterator[Row]:
    """The part of ``dataset`` that the options ask for; all of it is read only for a sample.

    ``limit`` counts before ``sample``. Raises `SubmissionError`.
    """
    if limit is None and sample is None:
        return dataset
    rows = islice(read_rows(dataset), limit)
    return rows if sample is None else iter(sample_of(rows, sample, seed))


def sample_of(rows: Iterable[Row], count: int, seed: int) -> list[Row]:
    """``count`` of the rows, each as likely as another, in their order; no more are held at a time."""
    kept: list[tuple[int, Row]] = []
    draw = random.Random(seed)
    for seen, row in enumerate(rows):  # reservoir sampling (Vitter 1985, algorithm R)
        if seen < count:
            kept.append((seen, row))
        elif (place := draw.randrange(seen + 1)) < count:
            kept[place] = (seen, row)
    return [row for _, row in sorted(kept, key=lambda each: each[0])]
