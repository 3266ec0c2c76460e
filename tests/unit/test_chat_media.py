"""Images and files are what their bytes say, and messages that say nothing reach no provider."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect, UnmappableError
from fairlane_workers.providers.protocols.anthropic_messages import AnthropicMessages
from fairlane_workers.providers.protocols.bedrock import Bedrock
from fairlane_workers.providers.protocols.gemini import Gemini
from fairlane_workers.providers.requests.media import type_of
from fairlane_workers.providers.requests.messages import read_messages

HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\0\0\0\0WEBP",
    "application/pdf": b"%PDF-1.7",
}
LABELS = ["image/jpg", "image/jpeg", "image/png", "IMAGE/PNG", "application/pdf", "application/octet-stream"]
DIALECTS: list[Dialect] = [AnthropicMessages(), Gemini(), Bedrock()]


def body(dialect: Dialect, *messages: dict[str, Any], **params: Any) -> dict[str, Any]:
    sent: dict[str, Any] = dialect.body(Request("m", list(messages), params, False, 9.0, 999))
    return sent


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def block(dialect: Dialect, part: dict[str, Any]) -> dict[str, Any]:
    sent = body(dialect, user([part]))
    turn = (sent.get("messages") or sent["contents"])[0]
    (found,) = turn.get("content") or turn["parts"]
    return dict(found)


kinds = st.sampled_from(sorted(HEADS))


@given(
    kinds,
    st.binary(max_size=60),
    st.sampled_from(LABELS),
    st.sampled_from(["data", "DATA", "Data"]),
    st.sampled_from(["", ";charset=utf-8", ";name=a.png"]),
    st.integers(4, 76),
    st.sampled_from(["image_url", "text", "file"]),
)
def test_the_bytes_say_what_an_image_is(
    kind: str, rest: bytes, label: str, scheme: str, more: str, width: int, form: str
) -> None:
    data = base64.b64encode(HEADS[kind] + rest).decode()
    lines = "\r\n".join(data[at : at + width] for at in range(0, len(data), width))
    url = f"{scheme}:{label}{more};BASE64,{lines}\n" if more else f"{scheme}:{label};base64,{lines}"
    part: dict[str, Any] = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    if form == "text":
        part = {"type": "image_url", "image_url": url}
    elif form == "file":
        part = {"type": "file", "file": {"file_data": url}}
    assert type_of(data) == kind
    is_pdf = kind == "application/pdf"
    source = {"type": "base64", "media_type": kind, "data": data}
    assert block(DIALECTS[0], part) == {"type": "document" if is_pdf else "image", "source": source}
    assert block(DIALECTS[1], part) == {"inlineData": {"mimeType": kind, "data": data}}
    assert next(iter(block(DIALECTS[2], part))) == ("document" if is_pdf else "image")


@pytest.mark.parametrize(("label", "kind"), [("image/jpg", "image/jpeg"), ("image/x-png", "image/png")])
def test_unknown_bytes_have_the_type_of_their_label(label: str, kind: str) -> None:
    part = {"type": "image_url", "image_url": {"url": f"data:{label};base64,AAAA"}}
    assert block(DIALECTS[0], part)["source"]["media_type"] == kind


def file(label: str, data: bytes) -> dict[str, Any]:
    url = f"data:{label};base64,{base64.b64encode(data).decode()}"
    return {"type": "file", "file": {"file_data": url, "filename": "a"}}


@pytest.mark.parametrize("label", ["text/plain", "text/csv", "text/markdown", "application/json"])
def test_anthropic_takes_texts_as_such(label: str) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "a,b"}
    assert block(DIALECTS[0], file(label, b"a,b")) == {"type": "document", "source": source, "title": "a"}


@pytest.mark.parametrize(
    "part",
    [
        file("application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"PK\3\4docx"),
        file("application/octet-stream", b"\0\1\2"),
        {"type": "image_url", "image_url": {"url": "data:image/tiff;base64,SUkqAA=="}},
    ],
)
def test_what_anthropic_does_not_take_is_named_by_its_place(part: dict[str, Any]) -> None:
    with pytest.raises(UnmappableError, match=r"messages\[0\]\.content\[1\]: .* takes .*, not "):
        body(DIALECTS[0], user([{"type": "text", "text": "See"}, part]))


def test_a_pdf_on_the_web_is_a_document() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://x/y.pdf"}}
    expected = {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}
    assert block(DIALECTS[0], part) == expected


@given(st.text(max_size=80))
def test_any_text_as_an_address_is_read_or_refused(url: str) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    with suppress(UnmappableError):
        (message,) = read_messages([user([part])])
        assert message.media


empty = st.sampled_from(["", None, [], [{"type": "text", "text": ""}]])
words = st.sampled_from(["a", " ", [{"type": "text", "text": "b"}]])
turns = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant", "system"]),
        empty | words,
    ),
    max_size=6,
)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.protocol)
@given(turns)
def test_no_message_is_sent_that_says_nothing(dialect: Dialect, messages: list[dict[str, Any]]) -> None:
    # Anthropic and Amazon also reject a text of blanks alone.
    says = ["a", [{"type": "text", "text": "b"}], *([" "] if dialect.protocol == "gemini" else [])]
    asked = any(each["role"] == "user" and each["content"] in says for each in messages)
    if not asked:
        with pytest.raises(UnmappableError, match='messages: no message of the role "user" has content'):
            body(dialect, *messages)
        return
    sent = body(dialect, *messages)
    for turn in sent.get("messages") or sent["contents"]:
        content = turn.get("content") or turn.get("parts")
        assert content
        assert all(part.get("text") for part in content if isinstance(part, dict))


def test_a_call_or_a_result_of_a_tool_needs_no_text() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    chat = [
        user("hi"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ]
    for dialect in DIALECTS:
        sent = body(dialect, *chat)
        assert len(sent.get("messages") or sent["contents"]) == 3


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, 1024),
        ({"max_tokens": 5, "thinking": {"type": "enabled", "budget_tokens": 4000}}, 5),
        ({"thinking": {"type": "enabled", "budget_tokens": 4000}}, 5024),
        ({"thinking": {"type": "adaptive"}}, 16_384),
        ({"thinking": {"type": "disabled"}}, 1024),
        ({"thinking": {"type": "disabled"}, "reasoning_effort": "low"}, 1024),
        ({"reasoning_effort": "high"}, 16_384),
        ({"output_config": {"effort": "low"}}, 16_384),
    ],
)
def test_anthropics_limit_leaves_room_for_thoughts(params: dict[str, Any], expected: int) -> None:
    assert body(DIALECTS[0], user("hi"), **params)["max_tokens"] == expected
