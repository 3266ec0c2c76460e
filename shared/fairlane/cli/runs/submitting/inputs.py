"""Reads the prompts, chats and dataset of ``fairlane submit``."""

import json
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlane.cli.runs.submitting.assignments import read_params
from fairlane.client.submitting.arguments import Messages
from fairlane.core.errors import SubmissionError
from fairlane.core.paths import at_home
from fairlane.datasets.rows import read_file, read_rows

prompt_option = partial(typer.Option, rich_help_panel="Models and prompts")

STANDARD_INPUT = "-"
JSON_LINES = ".jsonl"
Dataset = Path | Iterator[dict[str, Any]]


def read_text(option: str, path: Path) -> str:
    """A file's text as it is. Raises `SubmissionError`."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SubmissionError(
            option, str(path), f"cannot be read: {error.strerror}", "Check the path."
        ) from None
    except UnicodeDecodeError:
        raise SubmissionError(option, str(path), "is not UTF-8", "Save the file as UTF-8.") from None


def read_messages(option: str, path: Path) -> Messages:
    """A chat: a JSON array of messages, which ``submit`` checks. Raises `SubmissionError`."""
    remedy = 'Write an array of messages, like [{"role": "user", "content": "…"}].'
    try:
        messages = json.loads(read_text(option, path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, SubmissionError):
            raise
        raise SubmissionError(option, str(path), f"is not JSON: {error}", remedy) from None
    if not isinstance(messages, list):
        raise SubmissionError(option, str(path), "is no JSON array", remedy)
    return messages


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Options for the task calls of a run: models, prompts, parameters, repetitions."""

    model: Annotated[list[str] | None, prompt_option("--model", "-m", metavar="MODEL")] = None
    """"<connection>:<model>", or a template for it. Repeatable."""

    prompt: Annotated[list[str] | None, prompt_option("--prompt", metavar="TEXT")] = None
    """Jinja2 template over a row. Repeatable."""

    prompt_file: Annotated[list[Path] | None, prompt_option("--prompt-file", metavar="FILE")] = None
    """A prompt from a file. Repeatable."""

    messages_file: Annotated[list[Path] | None, prompt_option("--messages-file", metavar="FILE")] = None
    """JSON array of messages with role and content (a template). Repeatable."""

    param: Annotated[list[str] | None, prompt_option("--param", metavar="K=V")] = None
    """A parameter of the provider, like max_tokens=64; values are JSON or plain words. Repeatable."""

    repetitions: Annotated[int, prompt_option(metavar="N", min=1, max=10_000)] = 1
    """Calls for each prompt."""

    def params(self) -> dict[str, Any]:
        """The provider's parameters. Raises `SubmissionError`."""
        return read_params("--param", self.param or ())

    def prompts(self, *, optional: bool = False) -> dict[str, Any]:
        """The prompts as an argument of ``submit``. Raises `SubmissionError`.

        Raises ``typer.BadParameter`` if there is none, unless prompts are ``optional``.
        """
        texts = [*(self.prompt or ()), *(read_text("--prompt-file", path) for path in self.prompt_file or ())]
        chats = [read_messages("--messages-file", path) for path in self.messages_file or ()]
        match texts, chats:
            case [], [] if optional:
                return {}
            case [], []:
                raise typer.BadParameter("give --prompt TEXT, --prompt-file FILE or --messages-file FILE")
            case [text], []:
                return {"prompt": text}
            case [], [chat]:
                return {"messages": chat}
        return {"prompts": [*texts, *chats]}

    def submit_arguments(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """These options as arguments of ``submit``, with ``more`` of them. Raises `SubmissionError`.

        Raises ``typer.BadParameter`` without a model, unless ``more`` has a task or existing outputs.
        """
        models = self.model or []
        if not (models or "task" in more or "output" in more):
            raise typer.BadParameter("give --model MODEL, or --option task=… or output=FIELD")
        optional = any(name in more for name in ("output", "request", "task"))
        return {
            **self.prompts(optional=optional),
            "model": models[0] if len(models) == 1 else None,
            "models": models if len(models) > 1 else None,
            "params": self.params(),
            "repetitions": self.repetitions,
            **more,
        }


def open_dataset(name: str) -> Dataset:
    """The dataset that an argument names, as ``submit`` takes it.

    ``-`` means JSON lines on standard input. A pipe or device without a suffix has JSON lines, too.
    """
    path = at_home(Path(name))
    if name == STANDARD_INPUT:
        return read_file("standard input", sys.stdin.buffer, JSON_LINES)
    if not path.suffix and (path.is_fifo() or path.is_relative_to("/dev")):
        return _read_pipe(path)
    return path


def _read_pipe(path: Path) -> Iterator[dict[str, Any]]:
    """Its rows; it is opened once the first is read."""
    yield from read_file(str(path), path.open("rb"), JSON_LINES)


LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="Take the first N rows only.")
]
SampleOption = Annotated[
    int | None,
    typer.Option("--sample", metavar="N", min=1, help="Take N rows at random, in the dataset's order."),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        show_default="0",
        help="Chooses the --sample: the same seed takes the same rows.",
    ),
]

Row = dict[str, Any]


def portion_of(
    dataset: Path | Iterator[Row], limit: int | None, sample: int | None = None, seed: int | None = None
) -> Path | Iterator[Row]:
    """The first ``limit`` rows, or a random ``sample`` of these. Only a sample is read in full at once.

    Raises `SubmissionError`, and ``typer.BadParameter`` for a ``seed`` that chooses nothing.
    """
    if seed is not None and sample is None:
        raise typer.BadParameter("--seed chooses a --sample: give --sample N, too")
    if limit is None and sample is None:
        return dataset
    rows = islice(read_rows(dataset), limit)
    return rows if sample is None else iter(sample_of(rows, sample, seed or 0))


def sample_of(rows: Iterable[Row], count: int, seed: int) -> list[Row]:
    """``count`` random rows in their order, each equally likely. Holds at most so many in memory."""
    kept: list[tuple[int, Row]] = []
    draw = random.Random(seed)
    for seen, row in enumerate(rows):  # reservoir sampling (Vitter 1985, algorithm R)
        if seen < count:
            kept.append((seen, row))
        elif (place := draw.randrange(seen + 1)) < count:
            kept[place] = (seen, row)
    return [row for _, row in sorted(kept, key=lambda each: each[0])]
