"""Prompts are counted by their model's tokenizer where its vocabulary is here, and nothing is downloaded."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fairlane.pipeline.rendering import Call
from fairlane_scheduler.feed.tokenizers import MOST_CHARACTERS, VOCABULARIES, Tokenizers, load_tokenizers
from tests.support.tools import lacking

CHINESE = "把这段话翻译成英文 并解释其中的成语 " * 10


@pytest.fixture(autouse=True, scope="module")
def _tokenizers_are_installed() -> None:
    if missing := [name for name in ("tiktoken", "litellm") if find_spec(name) is None]:
        lacking(f"these tests need {' and '.join(missing)}")


def vocabularies() -> Path:
    """A folder of vocabularies: LiteLLM brings one. Importing it takes seconds."""
    found = find_spec("litellm")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "litellm_core_utils" / "tokenizers"


class Bytewise:
    """An encoding whose tokens are bytes: the most that any can have."""

    def encode(self, text: str, *, disallowed_special: Sequence[str]) -> list[int]:
        assert disallowed_special == ()
        return list(text.encode("utf-8", "surrogatepass"))


class Wordwise:
    def encode(self, text: str, *, disallowed_special: Sequence[str]) -> list[int]:
        return [0] * len(text.split())


def chat(text: str, model: str = "main:gpt-4o", **params: object) -> Call:
    return Call(model, [{"role": "user", "content": text}], params)


def wordwise() -> Tokenizers:
    return Tokenizers({"o200k_base": Wordwise()})


def test_a_prompt_is_counted_and_its_marks_are_kept() -> None:
    counted = wordwise().tokens(chat("one two three", max_tokens=5))
    assert (counted.input, counted.output) == (3 + 2 * 3, 5)
    assert counted.most_input == 3 + 1 + 2 * 16


@pytest.mark.parametrize("model", ["main:claude-5", "main:llama", "main:gpt-3.5-turbo", "main", ""])
def test_other_models_are_estimated_as_ever(model: str) -> None:
    call = chat("one two three", model)
    assert wordwise().tokens(call) == call.tokens


def test_a_vendor_before_the_name_is_no_part_of_it() -> None:
    call = chat("one two three", "proxy:openai/gpt-4o-mini")
    assert wordwise().tokens(call) != call.tokens


def test_long_prompts_and_functions_are_not_counted() -> None:
    for call in (chat("word " * MOST_CHARACTERS), Call("main:gpt-4o", [], {}, arguments={"a": 1})):
        assert wordwise().tokens(call) == call.tokens


def test_inputs_of_embeddings_are_counted() -> None:
    call = Call("main:text-embedding-3-small", [], {}, inputs=("one two", "three"))
    counted = Tokenizers({"cl100k_base": Wordwise()}).tokens(call)
    assert (counted.input, counted.most_input) == (3, 3 + 2 * 16)


@given(st.lists(st.text(max_size=200), max_size=5))
def test_tokens_that_are_bytes_make_the_bound_of_an_unknown_tokenizer(texts: list[str]) -> None:
    call = Call("main:gpt-4o", [{"role": "user", "content": text} for text in texts], {})
    counted = Tokenizers({"o200k_base": Bytewise()}).tokens(call)
    assert counted.most_input == call.tokens.most_input
    assert counted.input <= counted.most_input


def test_without_a_folder_one_line_says_what_to_set() -> None:
    with capture_logs() as logged:
        assert load_tokenizers({}) is None
    (line,) = logged
    assert line["event"] == "tokenizers_missing"
    assert "TIKTOKEN_CACHE_DIR is not set" in line["reason"]


def test_without_the_extra_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with capture_logs() as logged:
        assert load_tokenizers({"TIKTOKEN_CACHE_DIR": str(tmp_path)}) is None
    assert "fairlane[tokenizers]" in logged[0]["reason"]


def test_missing_and_damaged_vocabularies_are_named_and_left_as_they_are(tmp_path: Path) -> None:
    damaged, absent = (file for file, _ in VOCABULARIES.values())
    (tmp_path / damaged).write_text("damaged")
    with capture_logs() as logged:
        assert load_tokenizers({"TIKTOKEN_CACHE_DIR": str(tmp_path)}) is None
    assert f"lacks {damaged}, {absent}" in logged[0]["reason"]
    assert (tmp_path / damaged).read_text() == "damaged"


def test_a_vocabulary_at_hand_counts_as_the_model_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for file, _ in VOCABULARIES.values():
        shutil.copy(vocabularies() / file, tmp_path)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with capture_logs() as logged:
        tokenizers = load_tokenizers({"TIKTOKEN_CACHE_DIR": str(tmp_path)})
    assert tokenizers is not None
    assert logged == []
    call = chat(CHINESE)
    counted = tokenizers.tokens(call)
    assert call.tokens.input < counted.input < counted.most_input < call.tokens.most_input
    special = tokenizers.tokens(chat("<|endoftext|>"))
    assert special.input > 3 * 2 + 1, "names of special tokens are text"
    assert tokenizers.tokens(chat("\ud800")).input > 0
