"""A body's first bytes decide whether it is compressed; its header counts only where they do not."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlane_workers.transport import TransportError
from fairlane_workers.transport.reply import ENOUGH, opened, unpacked

NO_NAMES = (
    "utf-8",
    "none",
    "gzip, identity",
    "br",
    "zstd",
    "aws-chunked",
    "x",
    " GZIP ",
    "x-gzip",
    "gzip,br",
)
NAMES = st.sampled_from(("", "identity", "gzip", "deflate", "deflate, gzip", *NO_NAMES))
BODIES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=300),
    st.sampled_from(
        ['{"choices": []}', "data: {}\n\n", "\n\n: ping\n\ndata: 1\n\n", "<html>", "x^2+y^2=z^2", "x"]
    ),
)


def deflated(data: bytes) -> bytes:
    """Deflate without zlib's header, as some servers send it."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def flushed(data: bytes) -> bytes:
    """gzip that is flushed after each ten bytes, as a stream of events is."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    pieces = [data[at : at + 10] for at in range(0, len(data), 10)]
    return b"".join(packer.compress(p) + packer.flush(zlib.Z_SYNC_FLUSH) for p in pieces) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "flushed": flushed,
    **{f"zlib {level}": partial(zlib.compress, level=level) for level in (0, 1, 6, 9)},
}


def read(sent: bytes, encoding: str, sizes: list[int], max_bytes: int = 1 << 20) -> bytes:
    """A body that arrives in pieces of these sizes, and the rest."""

    async def pieces() -> AsyncIterator[bytes]:
        at = 0
        for size in sizes:
            if sent[at : at + size]:
                yield sent[at : at + size]
            at += size
        if sent[at:]:
            yield sent[at:]

    async def scenario() -> bytes:
        rest = pieces()
        head, window = await opened(rest, encoding)
        if window is not None:
            return b"".join([piece async for piece in unpacked(head, rest, window, max_bytes)])
        return head + b"".join([piece async for piece in rest])

    return asyncio.run(scenario())


SIZES = st.lists(st.integers(1, 40), max_size=20)


@given(text=BODIES, packer=st.sampled_from(sorted(PACKERS)), encoding=NAMES, sizes=SIZES)
@example(text="x", packer="none", encoding="", sizes=[])
@example(text="x^", packer="none", encoding="deflate", sizes=[1])
def test_a_text_is_read_however_it_is_packed_split_and_named(
    text: str, packer: str, encoding: str, sizes: list[int]
) -> None:
    data = text.encode()
    if not data:
        return
    assert read(PACKERS[packer](data), encoding, sizes) == data


@given(text=BODIES, sizes=SIZES)
def test_deflate_without_a_header_is_read_where_it_is_named(text: str, sizes: list[int]) -> None:
    data = text.encode()
    packed = deflated(data)
    if not data or all(32 <= byte < 127 for byte in packed[:ENOUGH]):
        return  # a few bytes that are a text as well
    assert read(packed, "deflate", sizes) == data


@given(level=st.integers(2, 5), encoding=st.sampled_from(["deflate", "Deflate"]), sizes=SIZES)
def test_the_header_of_zlib_that_is_a_text_counts_where_deflate_is_named(
    level: int, encoding: str, sizes: list[int]
) -> None:
    packed = zlib.compress(b'{"a": 1}' * 20, level)
    assert packed[:2] == b"x^"
    assert read(packed, encoding, sizes) == b'{"a": 1}' * 20


@given(data=st.binary(min_size=1, max_size=200), sizes=SIZES)
def test_bytes_that_no_header_names_are_left_as_they_are(data: bytes, sizes: list[int]) -> None:
    """Bedrock's frames begin with a length, others with whatever they like."""
    sent = b"\0" + data
    assert read(sent, "", sizes) == sent
    assert read(sent, "identity", sizes) == sent


@given(data=st.binary(max_size=300), encoding=NAMES, sizes=SIZES)
def test_whatever_arrives_is_read_or_a_fault_with_words(data: bytes, encoding: str, sizes: list[int]) -> None:
    words = ""
    try:
        read(data, encoding, sizes)
    except TransportError as fault:
        words = str(fault)
    assert len(words) < 150


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, zstd"])
def test_a_format_that_is_not_spoken_is_named(encoding: str) -> None:
    with pytest.raises(TransportError, match=f"encoded as '{encoding}', which was not asked for"):
        read(b"\x28\xb5\x2f\xfd\x04\x58\x29\x00\x00hello", encoding, [])


def test_a_stream_is_not_held_back_where_nothing_names_an_encoding() -> None:
    async def scenario() -> tuple[bytes, int | None]:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"\n"
            await asyncio.Event().wait()

        async with asyncio.timeout(5):
            return await opened(pieces(), "")

    assert asyncio.run(scenario()) == (b"\n", None)


def test_a_compressed_body_is_bounded_in_both_forms() -> None:
    with pytest.raises(TransportError, match="larger than 100 bytes"):
        read(b"\x78\x9c" + b"\x00\x00\x00\xff\xff" * 100, "utf-8", [40] * 10, max_bytes=100)
