"""Estimates of what a call will cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.tokens import (
    DEFAULT_OUTPUT_TOKENS,
    MOST_PAYLOAD_TOKENS,
    PAYLOAD_TOKENS,
    Entry,
    Estimate,
    estimate_call,
    estimate_tokens,
)

MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.just("user"), "content": st.text(max_size=50)}), max_size=5
)
PARAM = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("ä" * 8, 2)])
def test_four_characters_are_a_token(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(MESSAGES, st.integers(1, 5000))
def test_a_call_is_reserved_at_least_what_a_plain_count_charges(
    messages: list[dict[str, str]], limit: int
) -> None:
    characters = sum(len(message["content"]) for message in messages)
    estimate = estimate_call(messages, {"max_tokens": limit})
    assert estimate.input >= -(-characters // 4)
    assert (estimate.output, estimate.total) == (limit, estimate.input + limit)


@given(MESSAGES)
def test_no_prompt_of_a_byte_level_tokenizer_has_more_tokens_than_its_bound(
    messages: list[dict[str, str]],
) -> None:
    encoded = sum(len(message["content"].encode("utf-8", "surrogatepass")) for message in messages)
    estimate = estimate_call(messages, {})
    assert estimate.most_input >= encoded
    assert estimate.most >= estimate.most_input + estimate.output


@pytest.mark.parametrize("name", ["tools", "functions", "response_format", "system", "systemInstruction"])
def test_what_describes_tools_counts_as_prompt(name: str) -> None:
    bare, described = estimate_call([], {}), estimate_call([], {name: [{"name": "x" * 500}]})
    assert described.most_input > bare.most_input + 500


IMAGE = "iVBORw0KGgo" * 40_000
URL = f"data:image/png;base64,{IMAGE}"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": URL, "detail": "high"}},
        {"type": "input_image", "image_url": URL},
        {"type": "input_audio", "input_audio": {"data": IMAGE, "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": URL}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE + "=="}},
        {"inlineData": {"mimeType": "image/png", "data": IMAGE}},
        {"image": {"format": "png", "source": {"bytes": IMAGE}}},
        {"type": "tool_result", "content": [{"type": "image", "source": {"data": IMAGE}}]},
    ],
)
def test_an_image_counts_as_one_however_long_its_letters_are(part: dict[str, Any]) -> None:
    content = [{"type": "text", "text": "What is this?"}, part]
    estimate = estimate_call([{"role": "user", "content": content}], {"max_tokens": 5})
    assert PAYLOAD_TOKENS < estimate.input < PAYLOAD_TOKENS + 100
    assert MOST_PAYLOAD_TOKENS < estimate.most_input < MOST_PAYLOAD_TOKENS + 300


def test_images_beside_the_text_of_a_message_count_one_by_one() -> None:
    message = {"role": "user", "content": "What are these?", "images": [IMAGE, IMAGE]}
    assert 2 * MOST_PAYLOAD_TOKENS < estimate_call([message], {}).most_input < 2 * MOST_PAYLOAD_TOKENS + 100


@pytest.mark.parametrize(
    "content",
    [
        IMAGE,
        URL,
        [{"type": "text", "text": IMAGE}],
        [{"type": "text", "text": URL}],
        [{"type": "document", "source": {"type": "text", "data": "word " * 80_000}}],
    ],
)
def test_long_texts_are_no_images(content: object) -> None:
    estimate = estimate_call([{"role": "user", "content": content}], {})
    assert estimate.input > 100_000
    assert estimate.most_input > 400_000


@given(st.recursive(st.none() | st.booleans() | st.text() | st.floats(), st.lists, max_leaves=9))
def test_content_of_any_form_has_an_estimate(content: object) -> None:
    assert estimate_call([{"role": "user", "content": [content, {"text": content}]}], {}).input > 0


def test_an_answer_is_guessed_where_no_parameter_limits_it() -> None:
    assert estimate_call([], {}).guessed
    assert estimate_call([], {"options": {"num_predict": -1}}).guessed
    assert not estimate_call([], {"max_tokens": 5}).guessed
    assert not estimate_call([], {"options": {"num_predict": 5}}).guessed


@given(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99), st.integers(0, 999), st.booleans())
def test_an_entry_is_read_as_it_was_written(
    job: int, given: int, answer: int, most: int, guess: bool
) -> None:
    entry = Entry(job, Estimate(given, answer, most, guess), 3)
    assert Entry.parse(str(entry)) == entry
    assert Entry.parse(f"{job}:{given}:{answer}:3") == Entry(job, Estimate(given, answer), 3)


@pytest.mark.parametrize(
    ("params", "output"),
    [
        ({}, DEFAULT_OUTPUT_TOKENS),
        ({"max_tokens": 64}, 64),
        ({"max_completion_tokens": 65}, 65),
        ({"max_tokens": 64, "max_completion_tokens": 65}, 65),
        ({"max_tokens": 64, "n": 3}, 192),
        ({"max_tokens": 0}, DEFAULT_OUTPUT_TOKENS),
        ({"max_tokens": -5}, DEFAULT_OUTPUT_TOKENS),
        ({"max_tokens": True}, DEFAULT_OUTPUT_TOKENS),
        ({"max_tokens": "64"}, DEFAULT_OUTPUT_TOKENS),
        ({"max_tokens": 64, "n": 0}, 64),
        ({"generationConfig": {"maxOutputTokens": 8192}}, 8192),
        ({"generationConfig": {"maxOutputTokens": 64, "candidateCount": 3}}, 192),
        ({"max_tokens": 64, "generationConfig": {"maxOutputTokens": 8192}}, 8192),
        ({"inferenceConfig": {"maxTokens": 66}}, 66),
        ({"options": {"num_predict": 67}}, 67),
        ({"num_predict": 68}, 68),
        ({"options": {"num_predict": -1}}, DEFAULT_OUTPUT_TOKENS),
        ({"input": {"max_new_tokens": 69}}, 69),
        ({"max_new_tokens": 70}, 70),
        ({"generationConfig": None, "options": "x", "input": [1]}, DEFAULT_OUTPUT_TOKENS),
    ],
)
def test_the_output_is_the_limit_that_the_parameters_set(params: dict[str, Any], output: int) -> None:
    assert estimate_call([], params)[:2] == (estimate_call([], {}).input, output)


@given(MESSAGES, PARAM, PARAM, PARAM)
def test_an_estimate_is_of_positive_integers_whatever_the_parameters(
    messages: list[dict[str, str]], first: object, second: object, n: object
) -> None:
    estimate = estimate_call(messages, {"max_tokens": first, "max_completion_tokens": second, "n": n})
    assert {type(part) for part in estimate[:3]} == {int}
    assert min(estimate[:3]) > 0
