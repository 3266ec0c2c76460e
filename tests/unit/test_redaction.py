"""Nothing that is shown holds a credential, and nothing else is lost."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.redaction import MASK, fingerprint, mask_text, mask_value, spellings

PASSWORDS = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="'\""), min_size=1)


@given(password=PASSWORDS)
def test_a_urls_password_is_masked_whatever_it_holds(password: str) -> None:
    shown = mask_text(f"cannot reach redis://user:§{password}§@host:6379/0 now")
    assert shown == f"cannot reach redis://user:{MASK}@host:6379/0 now"


PARTS = ["://", "@", ":", "?", "&", "key=", "code=", "a", "/", " ", "'", "Bearer ", "=", "#"]


@given(text=st.text() | st.lists(st.sampled_from(PARTS)).map("".join))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    assert mask_text(mask_text(text)) == mask_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "redis://127.0.0.1:6379/0",
        "unix:///run/redis.sock?db=1",
        "https://api.example/v1",
        "a:b@c",
        "max_tokens=5",
        "https://api.example/@scope/package",
        "https://api.example/v1?page=2&model=m",
    ],
)
def test_what_holds_no_credential_is_kept(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://host?password=x&db=1", "redis://host?password=***&db=1"),
        ("https://host/v1?key=abc", "https://host/v1?key=***"),
        ("https://host/v1?api-version=1&code=abc", "https://host/v1?api-version=1&code=***"),
        ("https://host/v1?sig=abc&se=9", "https://host/v1?sig=***&se=9"),
        ("https://host/v1?access_token=abc", "https://host/v1?access_token=***"),
        ("https://host/v1?subscription-key=abc", "https://host/v1?subscription-key=***"),
        ("https://host/v1?X-Amz-Security-Token=abc", "https://host/v1?X-Amz-Security-Token=***"),
        ("redis://secret@host:6379/0", "redis://***@host:6379/0"),
        ("redis://sec@ret@host:6379/0", "redis://***@host:6379/0"),
        ("sent Authorization: Bearer sk-123, got 401", "sent Authorization: Bearer ***, got 401"),
        ("{'Authorization': 'Bearer sk-123'}", "{'Authorization': 'Bearer ***'}"),
        ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic ***"),
    ],
)
def test_credentials_in_other_places_are_masked(text: str, shown: str) -> None:
    assert mask_text(text) == shown


@pytest.mark.parametrize(
    "name", ["api_key", "Authorization", "x-api-key", "password", "redis_password", "Cookie"]
)
def test_a_field_with_a_secret_name_is_masked_whole(name: str) -> None:
    assert mask_value(name, "sk-123") == MASK
    assert mask_value("request", {"headers": [{name: "sk-123"}]}) == {"headers": [{name: MASK}]}


@pytest.mark.parametrize(
    "value",
    [
        ValueError("redis://:secret@host"),
        [ValueError("redis://:secret@host")],
        {"error": ValueError("redis://:secret@host")},
        b"redis://:secret@host",
        {"redis://:secret@host"},
        {"redis://:secret@host": 1},
    ],
)
def test_a_value_of_any_kind_is_masked(value: object) -> None:
    masked = mask_value("error", value)
    assert "secret" not in f"{masked!r}"
    assert MASK in f"{masked!r}"


@pytest.mark.parametrize("value", [Path("/a"), 7, 0.5, True, None, ValueError("no URL")])
def test_a_value_without_a_secret_stays_what_it_is(value: object) -> None:
    assert mask_value("error", value) is value


@pytest.mark.parametrize("sign", ["://a:", "://", "x://a:b", "://a@", "?a", "Bearer "])
def test_masking_takes_time_linear_in_a_text(sign: str) -> None:
    began = time.process_time()
    mask_text(sign * 40_000)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("name", ["tokens", "input_tokens", "lane", "key", "job"])
def test_a_field_with_a_harmless_name_is_kept(name: str) -> None:
    assert mask_value(name, 7) == 7


def test_a_fingerprint_is_an_hmac_with_the_deployment_s_salt() -> None:
    whole = hmac.new(b"salt", b"sk-123", hashlib.sha256).hexdigest()
    assert fingerprint("sk-123", b"salt") == whole[:12]
    assert fingerprint("sk-123", b"another") != fingerprint("sk-123", b"salt")
    assert fingerprint("sk-124", b"salt") != fingerprint("sk-123", b"salt")


@given(
    secret=st.text(st.characters(codec="ascii", min_codepoint=33), min_size=12), around=st.binary(max_size=9)
)
def test_a_quoted_secret_holds_one_of_its_spellings(secret: str, around: bytes) -> None:
    text = base64.b64encode(around + secret.encode() + around).decode()
    for quoted in (secret, json.dumps(secret), quote(secret), secret.encode().hex(), text):
        assert any(spelling in quoted for spelling in spellings(secret))


def test_a_short_secret_has_no_spelling_that_words_may_hold() -> None:
    assert spellings("abc") == ("abc",)
