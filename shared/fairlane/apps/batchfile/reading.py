"""Reads a batch's requests as rows, and reports the errors of all lines and bodies before anything runs."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO

from fairlane.core.errors import BatchFileError, SubmissionError
from fairlane.datasets.lines import MalformedFile, numbered_lines, unique_keys
from fairlane.datasets.row_json import check_row
from fairlane.datasets.rows import MAX_ROW_BYTES
from fairlane.pipeline.requests import (
    CHAT_URL,
    EMBEDDINGS_URL,
    RESPONSES_URL,
    URL_FIELD,
    MalformedRequest,
    inputs_of,
)

ID_FIELD, REQUEST_FIELD = "custom_id", "body"
METHOD = "POST"
MOST_PROBLEMS = 20
MOST_SUSPECTS = 10_000
"""Most repeated digests whose ids are compared: far more than errors reported."""

_SORTED_BY = 3
"""Bits by which digests are sorted in eight parts, one in memory at a time."""

_ONE_EACH = "Give each line one of its own"

ENDPOINTS = (CHAT_URL, EMBEDDINGS_URL, RESPONSES_URL)

_KINDS = {CHAT_URL: "chat request", EMBEDDINGS_URL: "request for embeddings", RESPONSES_URL: "request"}
_NEEDS_STATE = ("previous_response_id", "conversation")


def check_batch(path: Path, *, own_models: bool) -> int:
    """How many requests a file holds. Reads all of it; about 20 bytes a request are in memory.

    ``own_models``: each request goes to the model in its body. Raises `BatchFileError` with what is wrong,
    and `SubmissionError` where the file cannot be read.
    """
    problems: list[tuple[int, str]] = []
    digests = array("Q")
    for number, line in _lines(path, problems):
        found, row = _read(line, own_models=own_models)
        problems += [(number, what) for what in found]
        if len(problems) > MOST_PROBLEMS:
            break
        if row is not None and isinstance(row[ID_FIELD], str):
            digests.append(_digest(row[ID_FIELD]))
    more = len(problems) > MOST_PROBLEMS
    if not more and (suspects := _twice(digests)):
        problems += islice(_repeated(path, suspects), MOST_PROBLEMS + 1)
        more = len(problems) > MOST_PROBLEMS
    if problems:
        raise BatchFileError(path, sorted(problems)[:MOST_PROBLEMS], more=more)
    if not digests:
        remedy = (
            f'Write lines of {{"custom_id": …, "method": "{METHOD}", "url": "{CHAT_URL}", "body": {{…}}}}.'
        )
        raise SubmissionError("batch", str(path), "holds no request", remedy)
    return len(digests)


def read_batch(path: Path, *, own_models: bool) -> Iterator[dict[str, Any]]:
    """The requests as rows of ``custom_id`` and ``body``, one in memory at a time; also ``url`` unless it is
    a chat's.

    Raises `BatchFileError` at the first line that `check_batch` would not have let pass.
    """
    problems: list[tuple[int, str]] = []
    for number, line in _lines(path, problems):
        found, row = _read(line, own_models=own_models)
        if found or row is None:
            raise BatchFileError(path, [(number, what) for what in found], more=False)
        yield row
    if problems:
        raise BatchFileError(path, problems, more=False)


def _lines(path: Path, problems: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines that are not blank. It ends at a line that is not text, and adds that to ``problems``."""
    number = 0
    with _opened(path) as file:
        try:
            for number, line in numbered_lines(file):
                if not line.isspace():
                    yield number, line
        except MalformedFile as error:
            problems.append((number + 1, f"{error}. {error.remedy}"))
        except OSError as error:
            problem = f"cannot be read after line {number}: {error.strerror}"
            raise SubmissionError("batch", str(path), problem) from None


def _opened(path: Path) -> BinaryIO:
    if path.is_fifo() or path.is_char_device():
        remedy = "Save it as a file: all lines are checked before the first is sent."
        raise SubmissionError("batch", str(path), "cannot be read twice", remedy)
    try:
        return path.open("rb")
    except OSError as error:
        raise SubmissionError(
            "batch", str(path), f"cannot be read: {error.strerror}", "Check the path."
        ) from None


def _read(line: str, *, own_models: bool) -> tuple[list[str], dict[str, Any] | None]:
    """What is wrong with a line, and its row where it is an object."""
    try:
        given = json.loads(line, object_pairs_hook=unique_keys)
    except MalformedFile as error:
        return [f"{error}. {error.remedy}".removesuffix(".")], None
    except (ValueError, RecursionError) as error:
        return [f"is no JSON: {error}. Write one JSON object a line"], None
    if not isinstance(given, dict):
        return [f"is no object but a {type(given).__name__}. Write one JSON object a line"], None
    url, row = given.get(URL_FIELD), {field: given.get(field) for field in (ID_FIELD, REQUEST_FIELD)}
    if url != CHAT_URL:
        row[URL_FIELD] = url
    # The body of an unknown API cannot be checked.
    bodies = body_problems(url, row[REQUEST_FIELD], own_models=own_models) if url in ENDPOINTS else ()
    return [*_envelope(given), *bodies, *_content(row, line)], row


def _envelope(given: dict[str, Any]) -> Iterator[str]:
    name, method, url = given.get(ID_FIELD), given.get("method"), given.get(URL_FIELD)
    if not isinstance(name, str) or not name:
        what = "missing" if name is None else f"{shown(name)}, not a text"
        yield f"custom_id is {what}. {_ONE_EACH}"
    if method != METHOD:
        yield f'method is {shown(method)}. Write "{METHOD}", the one there is'
    if url not in ENDPOINTS:
        yield f"url is {shown(url)}. Write one of {', '.join(ENDPOINTS)}; no other is called"


def _content(row: dict[str, Any], line: str) -> Iterator[str]:
    """Problems of any row: content that none may hold, and its size."""
    try:
        check_row(row, 1)
        size = len(json.dumps(row, ensure_ascii=False).encode()) if len(line) > MAX_ROW_BYTES // 4 else 0
    except SubmissionError as error:
        yield str(error).removeprefix("dataset, row 1: ")
        return
    if size > MAX_ROW_BYTES:
        yield f"has {size:,} bytes, at most {MAX_ROW_BYTES:,} are allowed. Shorten its messages"


def _digest(name: str) -> int:
    text = name.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def _twice(digests: array[int]) -> set[int]:
    """Digests that occur more than once, at most `MOST_SUSPECTS`.

    They are sorted in parts, by their first bits: a sorted list takes five times the memory of the array.
    """
    found: set[int] = set()
    for bits in range(1 << _SORTED_BY):
        part = sorted(digest for digest in digests if digest >> (64 - _SORTED_BY) == bits)
        repeated = (digest for digest, following in pairwise(part) if digest == following)
        found.update(islice(repeated, MOST_SUSPECTS - len(found)))
    return found


def _repeated(path: Path, suspects: set[int]) -> Iterator[tuple[int, str]]:
    """Lines whose ``custom_id`` is on an earlier one. Digests narrow the search; texts decide."""
    first: dict[str, int] = {}
    for number, line in _lines(path, []):
        _, row = _read(line, own_models=False)
        name = row[ID_FIELD] if row else None
        if not isinstance(name, str) or _digest(name) not in suspects:
            continue
        if name in first:
            yield number, f"custom_id {shown(name)} is on line {first[name]:,}, too. {_ONE_EACH}"
        else:
            first[name] = number


def body_problems(url: str, body: object, *, own_models: bool) -> Iterator[str]:
    """The problems of a body, each with its remedy. ``own_models``: the body must name a model."""
    if not isinstance(body, dict):
        yield f"body is {shown(body)}. Write the {_KINDS[url]} there, as an object"
        return
    if url == CHAT_URL:
        yield from _chat(body)
    elif url == EMBEDDINGS_URL:
        yield from _embeddings(body)
    else:
        yield from _response(body)
    model = body.get("model")
    if own_models and (not isinstance(model, str) or not model.strip()):
        yield f"body.model is {shown(model)}. Name a model there, or give one for all lines with --model"


def shown(value: object) -> str:
    """A value in a message, on one line and not too long."""
    if value is None:
        return "missing"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _chat(body: dict[str, Any]) -> Iterator[str]:
    messages, choices = body.get("messages"), body.get("n")
    if not isinstance(messages, list) or not messages:
        yield f"body.messages is {shown(messages)}. Write a list of at least one message"
    else:
        for place, message in enumerate(messages):
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                yield f'body.messages[{place}] is no message. Write {{"role": "user", "content": "…"}}'
                break
    if choices not in (None, 1):
        yield f"body.n is {shown(choices)}, and one choice is kept. Write a line for each"


def _embeddings(body: dict[str, Any]) -> Iterator[str]:
    given, form = body.get("input"), body.get("encoding_format")
    try:
        inputs_of(given)
    except MalformedRequest:
        yield f"body.input is {shown(given)}. Write a text or a list of texts that are not empty"
    if form not in (None, "float", "base64"):
        yield f'body.encoding_format is {shown(form)}. Write "float" or "base64"'


def _response(body: dict[str, Any]) -> Iterator[str]:
    given = body.get("input")
    if isinstance(given, list) and given:
        for place, item in enumerate(given):
            if not isinstance(item, dict):
                yield f'body.input[{place}] is no item. Write {{"role": "user", "content": "…"}}'
                break
    elif not isinstance(given, str) or not given:
        yield f"body.input is {shown(given)}. Write a text or a list of items"
    for name in _NEEDS_STATE:
        if body.get(name) is not None:
            yield f"body.{name} continues an earlier answer. Write the whole conversation into body.input"
    if body.get("background"):
        yield "body.background is true. Leave it out: the worker waits for the answer"
