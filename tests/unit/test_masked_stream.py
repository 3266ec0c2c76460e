"""Streamed pieces hold no credential either, wherever the provider cuts them."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlane.core.redaction import MASK, RUN, Secrets
from fairlane_workers.providers.answers.pieces import MaskedStream
from tests.unit.test_secret_masks import KEY, KEYS, SEPARATED, WAYS, runs_of

SPELLINGS = {**WAYS, **SEPARATED}
CUTS = st.lists(st.integers(1, 30), max_size=40)
TEXTS = st.lists(
    st.one_of(
        st.text(st.sampled_from('ab \\"\n{İ'), max_size=12),
        st.tuples(st.sampled_from(sorted(SPELLINGS)), st.integers(0, 30), st.integers(1, 60)),
    ),
    max_size=8,
)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    pieces, at = list[str](), 0
    for cut in cuts:
        pieces.append(text[at : at + cut])
        at += cut
    return [*pieces, text[at:]]


def shown(secrets: Secrets, pieces: list[str]) -> list[str]:
    stream = MaskedStream(lambda: secrets)
    return [*map(stream.feed, pieces), stream.finish()]


@given(key=KEYS, parts=TEXTS, cuts=CUTS)
@example(key=KEY, parts=["\\\\", ("plain", 0, 60), ("plain", 0, 60), "\\n"], cuts=[1] * 60)
@example(key="abcdefXYZ01\\23456789", parts=[("plain", 0, 12), "\\ab"], cuts=[1] * 40)
def test_pieces_joined_are_what_the_record_has(
    key: str, parts: list[str | tuple[str, int, int]], cuts: list[int]
) -> None:
    text = "".join(
        part if isinstance(part, str) else SPELLINGS[part[0]](key)[part[1] : part[1] + part[2]]
        for part in parts
    )
    secrets = Secrets([key])
    assert "".join(shown(secrets, pieces_of(text, cuts))) == secrets.masked(text)


@given(key=KEYS, way=st.sampled_from(sorted(WAYS)), cuts=CUTS)
def test_no_piece_and_no_two_together_hold_a_run_of_a_key(key: str, way: str, cuts: list[int]) -> None:
    spelled = WAYS[way](key)
    inside = spelled if " of a header" not in way else spelled[12:-4]
    joined = "".join(shown(Secrets([key]), pieces_of(f"It is {spelled}.", cuts)))
    assert not runs_of(inside.rstrip("=")[2:-2]) & runs_of(joined)


@given(text=st.text(max_size=300), cuts=CUTS)
def test_at_most_a_short_tail_is_buffered(text: str, cuts: list[int]) -> None:
    stream, arrived, passed = MaskedStream(lambda: Secrets([KEY])), "", ""
    for piece in pieces_of(text.replace("\\", "/"), cuts):
        arrived += piece
        passed += stream.feed(piece)
        if MASK not in passed:
            assert arrived.startswith(passed)
            assert len(arrived) - len(passed) < RUN
    assert passed + stream.finish() == arrived


def test_text_that_begins_no_key_is_passed_on_at_once() -> None:
    assert shown(Secrets([KEY]), ["Now ", "upon: ", "a time!"])[:3] == ["Now ", "upon: ", "a time!"]


def test_without_a_credential_nothing_is_held_back() -> None:
    assert shown(Secrets(), [KEY[:5], KEY[5:], "\\"]) == [KEY[:5], KEY[5:], "", "\\"]


@pytest.mark.parametrize("text", [KEY * 400, "\\" * 12_000, "sk-EVILSECR" * 1_000])
def test_the_work_is_linear_in_the_text(text: str) -> None:
    looked = 0

    class Counted(Secrets):
        def starts(self, text: str) -> list[int]:
            nonlocal looked
            looked += len(text)
            return super().starts(text)

    joined = "".join(shown(Counted([KEY]), list(text)))
    assert joined == Secrets([KEY]).masked(text)
    assert looked <= (3 * RUN) * (len(text) + 1)


def test_a_streamed_document_stays_json() -> None:
    document = json.dumps({"text": f'a "{KEY}\\" b'})
    assert json.loads("".join(shown(Secrets([KEY]), list(document))))["text"].startswith('a "')
