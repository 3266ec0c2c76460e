"""Datasets by reference: a path, or a URL that fsspec opens."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from fairlane.choices import Source
from fairlane.datasets.pages import pages
from fairlane.datasets.reading import read_file
from fairlane.datasets.rows import FIELD
from fairlane.errors import SubmissionError

Format: TypeAlias = Literal["jsonl", "json", "csv"]

_FORMATS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv"}


class Reference:
    """A dataset that the scheduler reads itself: ``Reference("s3://bucket/rows.jsonl")``.

    It must lie in a place that ``scheduler.datasets`` names. A path is one on the scheduler's machine.
    ``file_format`` is "jsonl", "json" or "csv"; left out, the suffix shows it.
    """

    def __init__(self, url: str | Path, file_format: Format | None = None) -> None:
        text = str(url)
        suffix = PurePosixPath(urlsplit(text).path).suffix.lower()
        chosen = file_format or _FORMATS.get(suffix)
        if chosen is None:
            remedy = 'Give file_format="jsonl", "json" or "csv".'
            raise SubmissionError(FIELD, text, "its suffix does not show its format", remedy)
        local = not urlsplit(text).scheme
        self.source = Source(url=str(Path(text).expanduser().resolve()) if local else text, format=chosen)


def open_reference(source: Source) -> Iterator[dict[str, Any]]:
    """Its rows in order, one in memory at a time. Raises `SubmissionError` for what cannot be read."""
    return read_file(source.url, _open(source.url), f".{source.format}")


def _open(url: str) -> BinaryIO:
    parts = urlsplit(url)
    try:
        if parts.scheme in ("", "file"):
            return Path(parts.path if parts.scheme else url).open("rb")
        fsspec: Any = import_module("fsspec")  # an extra: only URLs need it
        return cast(BinaryIO, fsspec.open(url, "rb").open())
    except FileNotFoundError:
        raise SubmissionError(FIELD, url, "there is no such file", "Check the path.") from None
    except ImportError as error:
        remedy = "Install fairlane[datasets] there, and what fsspec asks for this kind of URL."
        raise SubmissionError(FIELD, url, f"cannot be read: {error}", remedy) from None
    except (OSError, ValueError) as error:
        raise SubmissionError(FIELD, url, f"cannot be read: {error}", "Check the URL.") from None


class SourcePages:
    """Pages of a dataset by reference, for whoever reads records: forwards, and from the start again if
    need be.
    """

    def __init__(self, spec: _Paged) -> None:
        self._spec = spec
        self._next = 0
        self._pages: Iterator[list[dict[str, Any]]] | None = None

    def page(self, number: int) -> list[dict[str, Any]]:
        """One page. Empty rows where the dataset cannot be read from here."""
        source, size = self._spec.source, self._spec.page_rows
        if source is None:
            return []
        try:
            if self._pages is None or number < self._next:
                self._pages, self._next = pages(open_reference(source), size), 0
            page: list[dict[str, Any]] = []
            while self._next <= number:
                page = next(self._pages, [])
                self._next += 1
        except SubmissionError:
            self._pages = None
            return [{}] * size
        return page


class _Paged(Protocol):
    """As much of a run's spec as its pages need."""

    @property
    def source(self) -> Source | None: ...

    @property
    def page_rows(self) -> int: ...
