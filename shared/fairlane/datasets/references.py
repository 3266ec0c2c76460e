"""Datasets by reference: a path, or a URL that fsspec opens."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast, get_args
from urllib.parse import unquote, urlsplit

from fairlane.core.errors import DatasetChanged, SubmissionError
from fairlane.core.paths import at_home
from fairlane.datasets.row_json import FIELD
from fairlane.datasets.rows import MAX_PAGE_BYTES, Paging, read_file, reason_of
from fairlane.model.choices import Format, Source

_FORMATS: dict[str, Format] = {".ndjson": "jsonl", **{f".{name}": name for name in get_args(Format)}}


class Reference:
    """A dataset that the scheduler reads itself: ``Reference("s3://bucket/rows.jsonl")``.

    ``scheduler.datasets`` must allow its place. A path is one on the scheduler's machine. ``file_format`` is
    "jsonl", "json", "csv", "tsv" or "parquet"; by default the suffix says it.
    """

    def __init__(self, url: str | Path, file_format: Format | None = None) -> None:
        text = str(url)
        suffix = PurePosixPath(urlsplit(text).path).suffix.lower()
        chosen = file_format or _FORMATS.get(suffix)
        if chosen is None:
            remedy = 'Give file_format="jsonl", "json", "csv", "tsv" or "parquet".'
            raise SubmissionError(FIELD, text, "its suffix does not show its format", remedy)
        local = not urlsplit(text).scheme
        self.source = Source(url=str(at_home(Path(text)).resolve()) if local else text, format=chosen)


def open_reference(source: Source) -> Iterator[dict[str, Any]]:
    """Its rows in order, one in memory at a time. Raises `SubmissionError` if it cannot be read."""
    with _open(source.url) as file:
        yield from read_file(source.url, file, f".{source.format}")


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
    except Exception as error:  # noqa: BLE001 - the client of a remote file system has its own errors
        raise SubmissionError(FIELD, url, f"cannot be read: {reason_of(error)}", "Check the URL.") from None


def digest_of(page: Sequence[Mapping[str, Any]]) -> str:
    """The fingerprint that a run keeps of a page: its number of rows, and a digest of them."""
    text = json.dumps(page, ensure_ascii=False, separators=(",", ":"))
    content = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=12)
    return f"{len(page)}:{content.hexdigest()}"


class SourcePages:
    """Pages of a referenced dataset: read forwards, and from the start again if a reader goes back."""

    def __init__(
        self,
        source: Source,
        page_rows: int,
        digest: Callable[[int], str | None],
        row_bytes: int = MAX_PAGE_BYTES,
    ) -> None:
        """``digest`` returns the run's fingerprint of a page; ``None`` for one that an earlier version read.
        ``row_bytes``: the largest row as JSON. A reader accepts all rows that the run accepted.
        """
        self._source, self._page_rows, self._digest = source, page_rows, digest
        self._row_bytes = row_bytes
        self._next = 0
        self._pages: Iterator[list[dict[str, Any]]] | None = None

    def page(self, number: int) -> list[dict[str, Any]]:
        """One page as the run read it, without rows that were appended since.

        Raises `DatasetChanged`, and `SubmissionError` if this process cannot read the dataset.
        """
        page = self._read(number)
        stored = self._digest(number)
        if stored is None:
            return page
        count = stored.partition(":")[0]
        size = int(count) if count.isdecimal() else self._page_rows
        if digest_of(rows := page[:size]) != stored:
            first = number * self._page_rows
            raise DatasetChanged(self._source.url, first + 1, first + size)
        return rows

    def _read(self, number: int) -> list[dict[str, Any]]:
        try:
            if self._pages is None or number < self._next:
                rows = open_reference(self._source)
                self._pages = iter(Paging(rows, self._page_rows, self._row_bytes, fixed=True))
                self._next = 0
            page: list[dict[str, Any]] = []
            while self._next <= number:
                page = next(self._pages, [])
                self._next += 1
        except SubmissionError:
            self._pages = None
            raise
        return page


def lies_in(url: str, place: str) -> bool:
    """Whether a dataset lies in a place: a folder, or the prefix of URLs."""
    there, here = urlsplit(url), urlsplit(place)
    if there.scheme not in ("", "file"):
        inside = url.startswith(place if place.endswith("/") else f"{place}/")
        return inside and ".." not in unquote(there.path).split("/")
    # A plain path has no host, query or fragment: such characters are part of the path.
    path = Path(there.path if there.scheme else url)
    return here.scheme in ("", "file") and path.resolve().is_relative_to(
        Path(here.path if here.scheme else place).resolve()
    )
