"""No record holds twelve characters of a credential, however they are spelled, and nothing else is lost."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.redaction import LEAST_VARIED, MASK, RUN, Secrets
from fairlane.model.outcome import Success
from fairlane_workers.providers.answers.answer import Answer
from fairlane_workers.providers.answers.classify import Reading, conclude

KEY = "sk-EVILSECRET-zyx9876/+q&<k>"

WAYS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of a header": lambda key: base64.b64encode(f"Bearer {key}\n".encode()).decode(),
    "base64 for URLs": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    "base32": lambda key: base64.b32encode(key.encode()).decode(),
    "base32 of a header": lambda key: base64.b32encode(f"Bearer {key}".encode()).decode(),
    "URL": lambda key: quote(key, safe=""),
    "each character in a URL": lambda key: "".join(f"%{ord(sign):02X}" for sign in key),
    "hex": lambda key: key.encode().hex(),
    "HEX": lambda key: key.encode().hex().upper(),
    "HTML": html.escape,
    "JSON": lambda key: json.dumps(key)[1:-1],
    "each character as HTML": lambda key: "".join(f"&#{ord(sign)};" for sign in key),
    "each character as HTML, hex": lambda key: "".join(f"&#x{ord(sign):X};" for sign in key),
    "each character in JSON": lambda key: "".join(f"\\u{ord(sign):04x}" for sign in key),
    "each character in C": lambda key: "".join(f"\\x{ord(sign):02x}" for sign in key),
    "reversed": lambda key: key[::-1],
    "upper case": str.upper,
    "lower case": str.lower,
    "without its end": lambda key: key[:-3],
    "without its beginning": lambda key: key[4:],
    "twelve characters": lambda key: key[7:19],
}

SEPARATED: dict[str, Callable[[str], str]] = {
    "spaced": " ".join,
    "a line each": "\n".join,
    "dashed": "-".join,
    "by what nobody sees": "\u200b".join,
    "hex in pairs": lambda key: key.encode().hex(":"),
    "hex in pairs, spaced": lambda key: key.encode().hex(" ").upper(),
}

KEYS = st.text(st.sampled_from('abcdefXYZ0123456789-_+/.&"\\<'), min_size=20, max_size=80).filter(
    lambda key: all(len(set(key[at : at + RUN])) >= 6 for at in range(len(key) - RUN + 1))
)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def runs_of(text: str) -> set[str]:
    return {text[at : at + RUN] for at in range(len(text) - RUN + 1)}


@pytest.mark.parametrize("way", WAYS)
def test_each_spelling_is_masked_within_an_answer(way: str) -> None:
    spelled = WAYS[way](KEY)
    shown = Secrets([KEY]).masked(f"The key is {spelled}, İ said.")
    assert MASK in shown
    # Base32 of a header begins with "Bearer", which is no secret.
    assert not runs_of(spelled[12:] if "header" in way else spelled) & runs_of(shown)
    assert shown.startswith("The key is ")
    assert shown.endswith(", İ said.")


@given(key=KEYS, way=st.sampled_from(sorted(WAYS)), before=WORDS, after=WORDS)
def test_no_run_of_any_key_is_left(key: str, way: str, before: str, after: str) -> None:
    spelled = WAYS[way](key)
    shown = Secrets([key]).masked(before + spelled + after)
    # The ends of an encoded text that hold a part of its neighbours may stay.
    inside = spelled if " of a header" not in way else spelled[12:-4]
    assert not runs_of(inside.rstrip("=")[2:-2]) & runs_of(shown)


@pytest.mark.parametrize("way", SEPARATED)
def test_a_key_whose_characters_stand_apart_is_masked(way: str) -> None:
    shown = Secrets([KEY]).masked(f"The key is {SEPARATED[way](KEY)}, I said.")
    assert shown.startswith("The key is ***")
    assert len(shown) < len("The key is ***, I said.") + 6


@given(key=KEYS, way=st.sampled_from(sorted(SEPARATED)), before=WORDS, after=WORDS)
def test_no_varied_run_of_characters_apart_is_left(key: str, way: str, before: str, after: str) -> None:
    spelled, step = SEPARATED[way](key), 3 if "hex" in way else 2
    shown = Secrets([key]).masked(before + spelled + after)
    runs = {spelled[at : at + RUN] for at in range(0, len(spelled) - RUN + 1, step)}
    assert not {run for run in runs if len(set(run.lower())) >= LEAST_VARIED} & runs_of(shown)


@given(key=KEYS, cut=st.integers(0, 60), length=st.integers(RUN, 40), before=WORDS)
def test_a_part_of_a_key_is_masked(key: str, cut: int, length: int, before: str) -> None:
    part = key[cut : cut + length]
    if len(part) >= RUN:
        assert part not in Secrets([key]).masked(f"{before} {part}!")


@given(key=KEYS, answer=st.text(max_size=200))
def test_an_answer_without_the_key_stays_as_it_is(key: str, answer: str) -> None:
    if not any(run in answer.lower() for run in runs_of(key.lower())):
        assert Secrets([key]).masked(answer) == answer


@given(key=KEYS, way=st.sampled_from(["plain", "JSON", "URL", "reversed"]))
def test_a_json_answer_stays_json(key: str, way: str) -> None:
    document = json.dumps({"text": f'a "{WAYS[way](key)}" b', "n": 1}, ensure_ascii=False)
    shown = json.loads(Secrets([key]).masked(document))
    assert shown["n"] == 1
    assert key not in shown["text"]


@pytest.mark.parametrize("key", ["", "ollama", "none", "test-key-1", "------------------", "0" * 40])
def test_a_key_that_is_a_word_or_a_line_changes_no_answer(key: str) -> None:
    answer = f"{key} and ------------------ and {'0' * 50}"
    assert Secrets([key]).masked(answer) == answer


def test_a_query_is_masked_as_a_whole_alone() -> None:
    secrets = Secrets([], ["api-version=2024-10-21-preview"])
    assert "api-version=2024-10-21-preview" in list(secrets)
    assert secrets.masked("use api-version=2024-10-21") == "use api-version=2024-10-21"


def test_a_successful_answer_and_its_finish_reason_hold_no_key() -> None:
    answer = Answer(parts=[f"You sent Authorization: Bearer {KEY}."], ended=True)
    answer.finish(KEY)
    outcome = conclude(answer, 200, {}, Reading(), now_ms=0, secrets=Secrets([KEY]))
    assert isinstance(outcome, Success)
    assert outcome.output == f"You sent Authorization: Bearer {MASK}."
    assert outcome.finish_reason == MASK


def test_one_comparison_for_seven_characters_is_enough() -> None:
    """The cost of an answer that holds no key, in slices of text."""
    asked = 0

    class Counted(set[str]):
        def __contains__(self, item: object) -> bool:
            nonlocal asked
            asked += 1
            return super().__contains__(item)

    secrets = Secrets([KEY])
    secrets._hints = Counted(secrets._hints)
    answer = "Once upon a time there was a queue. " * 455
    assert secrets.masked(answer) == answer
    assert asked <= len(answer) // 7 + 1
    assert httpx.URL("https://a.example?key=1").params.multi_items() == [("key", "1")]
