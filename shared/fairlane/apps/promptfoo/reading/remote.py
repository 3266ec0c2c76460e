"""Reads remote tests: Hugging Face datasets, and public Google spreadsheets."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

import httpx

from fairlane.apps.promptfoo.reading.places import Place
from fairlane.config.environment import process_environment
from fairlane.core.figures import whole

ROWS_URL = "https://datasets-server.huggingface.co/rows"
"""The public service of rows."""

SHEETS = "https://docs.google.com/spreadsheets/"
SHEETS_URL = f"{SHEETS}d/"
"""Where spreadsheets are, and are exported from as CSV."""

MOST_ROWS, PAGE, TIMEOUT_S = 10_000, 100, 60.0
_SHEET = re.compile(
    r"https://docs\.google\.com/spreadsheets/d/(?P<id>[\w-]+)(?:[^#]*?(?:[?&#]|.*#)gid=(?P<gid>\d+))?"
)
_PREFIX = "huggingface://datasets/"
_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_TOKENS = ("HF_TOKEN", "HF_API_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def read_huggingface(reference: str, place: Place) -> Iterator[Mapping[str, Any]]:
    """The tests of ``huggingface://datasets/owner/name?split=…&config=…&limit=…``.

    Without a limit, more than 10,000 rows are a problem. ``HF_TOKEN`` may hold a token.
    """
    path, _, query = reference.removeprefix(_PREFIX).partition("?")
    if not reference.startswith(_PREFIX) or not path:
        place.refuse(f"{reference} names no data set: write {_PREFIX}owner/name")
        return
    asked = {"split": "test", "config": "default", **dict(parse_qsl(query))}
    limit = asked.pop("limit", "")
    wanted = int(limit) if limit.isdecimal() else None
    try:
        yield from _rows({"dataset": path, **asked}, wanted, place)
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        place.refuse(f"{reference} cannot be read: {error or type(error).__name__}")


def read_sheet(reference: str, place: Place) -> str | None:
    """The CSV of a spreadsheet, or a problem and ``None``. It must be shared with everyone."""
    found = _SHEET.match(reference)
    if found is None:
        place.refuse(f"{reference} names no spreadsheet: write {SHEETS_URL}<id>/edit?usp=sharing")
        return None
    params = {"format": "csv", **({"gid": found["gid"]} if found["gid"] else {})}
    try:
        with _client() as client:
            answer = client.get(f"{SHEETS_URL}{found['id']}/export", params=params)
            answer.raise_for_status()
    except (httpx.HTTPError, ValueError) as error:
        place.refuse(f"{reference} cannot be read: {error or type(error).__name__}")
        return None
    if "html" in answer.headers.get("content-type", ""):
        place.refuse(f"{reference} cannot be read: share it with everyone who has the link")
        return None
    return answer.text


def _client(headers: Mapping[str, str] | None = None) -> httpx.Client:
    """A client. Raises ``ValueError`` where the authorities that the environment names cannot be used."""
    try:
        return httpx.Client(timeout=TIMEOUT_S, headers=headers, follow_redirects=True)
    except OSError as error:
        named = ((name, process_environment().get(name)) for name in _AUTHORITIES)  # the first one counts
        said = next((f"{name} {value}" for name, value in named if value), "the system's certificates")
        problem = f"{said}: {error.strerror or error}. Name authorities in PEM, or unset it"
        raise ValueError(problem) from error


def _rows(asked: Mapping[str, str], wanted: int | None, place: Place) -> Iterator[Mapping[str, Any]]:
    environment = process_environment()
    token = next((environment[name] for name in _TOKENS if environment.get(name)), None)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    offset, total = 0, wanted if wanted is not None else MOST_ROWS
    with _client(headers) as client:
        while offset < total:
            length = min(PAGE, total - offset)
            answer = client.get(ROWS_URL, params={**asked, "offset": str(offset), "length": str(length)})
            answer.raise_for_status()
            page = answer.json(parse_float=whole)
            if wanted is None:
                total = min(total, int(page["num_rows_total"]))
                if page["num_rows_total"] > MOST_ROWS:
                    place.refuse(f"it has {page['num_rows_total']:,} rows: add ?limit={MOST_ROWS} or fewer")
                    return
            for each in page["rows"]:
                yield {"vars": each["row"], "options": {"disableVarExpansion": True}}
            if not page["rows"]:
                return
            offset += len(page["rows"])
