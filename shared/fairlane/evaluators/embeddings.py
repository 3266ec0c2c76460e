"""Stores embeddings as an answer's text, and compares two of them."""

from __future__ import annotations

import base64
import json
import math
import sys
from array import array
from collections.abc import Iterable, Sequence

FLOAT32 = "f"


class BrokenEmbeddings(ValueError):
    """A text holds no embeddings; the message says why."""


def pack(vectors: Iterable[Sequence[float]]) -> str:
    """The vectors as a JSON list of base64 texts of little-endian 32-bit floats, in OpenAI's form. It takes a
    third of the space of JSON numbers. Raises `BrokenEmbeddings` for what no float can hold.
    """
    try:
        return json.dumps([base64_of(vector) for vector in vectors])
    except (TypeError, OverflowError) as error:
        raise BrokenEmbeddings(f"a vector holds something other than numbers: {error}") from None


def read_embeddings(output: str | None) -> list[array[float]]:
    """The vectors, 32-bit floats, in the output of a record whose request asked for embeddings.

    One for each text of its ``input``. Raises ``ValueError`` (`BrokenEmbeddings`) for any other output.
    """
    try:
        document = json.loads(output or "")
        return [vector_of(each) for each in document]
    except (TypeError, ValueError, RecursionError) as error:
        raise BrokenEmbeddings(f"no embeddings: {error}") from None


def base64_of(vector: Sequence[float]) -> str:
    """One vector. Raises ``TypeError`` and ``OverflowError`` for a number that a float cannot be."""
    floats: array[float] = array(FLOAT32)
    floats.extend(vector)
    return base64.b64encode(_little_endian(floats).tobytes()).decode("ascii")


def vector_of(text: str) -> array[float]:
    """One base64 text. Raises ``ValueError`` and ``TypeError`` for anything else."""
    vector: array[float] = array(FLOAT32)
    vector.frombytes(base64.b64decode(text, validate=True))
    return _little_endian(vector)


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """``a·b / (|a| |b|)``, from −1 to 1. Raises `BrokenEmbeddings` for vectors without one."""
    if len(a) != len(b) or not a:
        raise BrokenEmbeddings(f"the embeddings have {len(a)} and {len(b)} dimensions")
    lengths = math.hypot(*a) * math.hypot(*b)
    if not 0 < lengths < math.inf:
        raise BrokenEmbeddings("an embedding has no direction")
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    return max(-1.0, min(1.0, dot / lengths))


def _little_endian(vector: array[float]) -> array[float]:
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
