"""Headers of every provider become hints, per minute, axis by axis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.hints import Axis, AxisHint, Hints
from fairlane_workers.providers.limits.amounts import LONGEST_MS, MOST
from fairlane_workers.providers.limits.reading import read_limits
from fairlane_workers.providers.limits.table import DIALECTS, NAMES, dialect_of

NOW_MS = 1_792_567_680_000  # Wed, 21 Oct 2026 07:28:00 GMT
Reported = dict[Axis, tuple[float | None, float | None, int | None]]


def openai_names(requests: tuple[str, str, str], tokens: tuple[str, str, str]) -> dict[str, str]:
    words = ("limit", "remaining", "reset")
    shown = {f"x-ratelimit-{word}-requests": value for word, value in zip(words, requests, strict=True)}
    return shown | {f"x-ratelimit-{word}-tokens": value for word, value in zip(words, tokens, strict=True)}


def axes(dialect: str | None, headers: dict[str, str]) -> Reported | None:
    hints = read_limits(dialect, headers, NOW_MS)
    return hints and {axis: tuple(hint) for axis, hint in hints.axes.items()}


OPENAI = openai_names(("10000", "9999", "6ms"), ("2000000", "1000000", "30s"))
OPENAI_A_DAY = openai_names(("10000", "9999", "8.64s"), ("150000", "149984", "6ms"))
AZURE = openai_names(("250", "249", "0"), ("250000", "249000", "12"))
GROQ = openai_names(("14400", "14370", "2m59.56s"), ("6000", "5234", "7.66s"))
ANTHROPIC = {
    f"anthropic-ratelimit-{axis}-{word}": value
    for axis, shown in {
        "requests": ("50", "49", "2026-10-21T07:28:01Z"),
        "tokens": ("48000", "40000", "2026-10-21T07:28:10Z"),
        "input-tokens": ("40000", "36000", "2026-10-21T07:28:06Z"),
        "output-tokens": ("8000", "4000", "2026-10-21T07:28:30Z"),
    }.items()
    for word, value in zip(("limit", "remaining", "reset"), shown, strict=True)
}


@pytest.mark.parametrize(
    ("dialect", "headers", "expected"),
    [
        ("openai", OPENAI, {"requests": (10_000, 9_999, 6), "tokens": (2_000_000, 1_000_000, 30_000)}),
        ("openai", OPENAI_A_DAY, {"day": (10_000, 9_999, 8_640), "tokens": (150_000, 149_984, 6)}),
        ("generic", OPENAI_A_DAY, {"requests": (10_000, 9_999, 8_640), "tokens": (150_000, 149_984, 6)}),
        ("azure", AZURE, {"requests": (250, 249, 0), "tokens": (250_000, 249_000, 12_000)}),
        (
            "azure",
            {**AZURE, "x-ratelimit-renewalperiod-requests": "10", "x-ratelimit-renewalperiod-tokens": "60"},
            {"requests": (1_500, 249, 0), "tokens": (250_000, 249_000, 12_000)},
        ),
        ("azure", openai_names(("-1", "-1", "0"), ("-1", "-1", "0")), None),
        (
            "anthropic",
            ANTHROPIC,
            {
                "requests": (50, 49, 1_000),
                "tokens": (48_000, 40_000, 10_000),
                "input": (40_000, 36_000, 6_000),
                "output": (8_000, 4_000, 30_000),
            },
        ),
        ("groq", GROQ, {"day": (14_400, 14_370, 179_560), "tokens": (6_000, 5_234, 7_660)}),
        (
            "mistral",
            {
                "x-ratelimitbysize-limit-minute": "500000",
                "x-ratelimitbysize-remaining-minute": "499000",
                "x-ratelimitbysize-limit-month": "1000000000",
                "x-ratelimitbysize-remaining-month": "999999000",
                "ratelimitbysize-reset": "32",
                "ratelimitbysize-query-cost": "1000",
            },
            {"tokens": (500_000, 499_000, 32_000)},
        ),
        (
            "mistral",
            {
                "x-ratelimit-limit-req-minute": "60",
                "x-ratelimit-remaining-req-minute": "59",
                "x-ratelimit-limit-tokens-minute": "50000",
                "x-ratelimit-remaining-tokens-minute": "49000",
            },
            {"requests": (60, 59, None), "tokens": (50_000, 49_000, None)},
        ),
        (
            "together",
            {
                "x-ratelimit-limit": "10",
                "x-ratelimit-remaining": "9",
                "x-ratelimit-reset": "1",
                "x-tokenlimit-limit": "3000",
                "x-tokenlimit-remaining": "2900",
            },
            {"requests": (600, 9, 1_000), "tokens": (180_000, 2_900, None)},
        ),
        (
            "fireworks",
            {
                "x-ratelimit-limit-tokens-prompt": "11250000",
                "x-ratelimit-remaining-tokens-prompt": "11000000",
                "x-ratelimit-limit-tokens-cache-adjusted-prompt": "5400000",
                "x-ratelimit-remaining-tokens-cache-adjusted-prompt": "5300000",
                "x-ratelimit-limit-tokens-generated": "36000",
                "x-ratelimit-remaining-tokens-generated": "35000",
            },
            {"input": (5_400_000, 5_300_000, None), "output": (36_000, 35_000, None)},
        ),
        (
            "cerebras",
            {
                "x-ratelimit-limit-requests-day": "14400",
                "x-ratelimit-remaining-requests-day": "14399",
                "x-ratelimit-reset-requests-day": "33011.382867",
                "x-ratelimit-limit-tokens-minute": "60000",
                "x-ratelimit-remaining-tokens-minute": "59000",
                "x-ratelimit-reset-tokens-minute": "11.382867",
            },
            {"day": (14_400, 14_399, 33_011_383), "tokens": (60_000, 59_000, 11_383)},
        ),
        (
            "xai",
            openai_names(("8", "7", "1792567681"), ("2000000", "1999000", "1792567690")),
            {"requests": (480, 7, 1_000), "tokens": (2_000_000, 1_999_000, 10_000)},
        ),
        (
            "xai",
            openai_names(("480", "479", "1792567681"), ("-1", "-1", "0")),
            {"requests": (480, 479, 1_000)},
        ),
        ("gemini", {"content-type": "application/json"}, None),
        ("bedrock", {"x-amzn-requestid": "1"}, None),
        ("deepseek", {"x-ds-trace-id": "1"}, None),
        (None, {}, None),
    ],
)
def test_each_provider_is_read_in_its_own_dialect(
    dialect: str | None, headers: dict[str, str], expected: Reported | None
) -> None:
    assert axes(dialect, headers) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            {"ratelimit": '"default";r=50;t=30', "ratelimit-policy": '"default";q=100;w=60'},
            {"requests": (100, 50, 30_000)},
        ),
        (
            {
                "ratelimit": '"second";r=5;t=1, "daily";r=900;t=3600',
                "ratelimit-policy": '"second";q=10;w=1, "daily";q=1000;w=86400',
            },
            {"requests": (600, 5, 1_000), "day": (1_000, 900, 3_600_000)},
        ),
        (
            {"ratelimit": '"api";r=0;t=55', "ratelimit-policy": '"fixed window";"api";q=500;w=300'},
            {"requests": (100, 0, 55_000)},
        ),
        (
            {"ratelimit": '"b";r=5;t=1', "ratelimit-policy": '"b";q=10;w=1, "d";q=1000;w=86400'},
            {"requests": (600, 5, 1_000), "day": (1_000, None, None)},
        ),
        (
            {"ratelimit-policy": '"calls";q=20;w=3600, "slots";q=4;qu="concurrent-requests"'},
            {"requests": (pytest.approx(1 / 3), None, None), "concurrency": (4, None, None)},
        ),
        (
            {"ratelimit-policy": '"bytes";q=9000;w=60;qu="content-bytes"', "ratelimit": '"bytes";r=0;t=9'},
            None,
        ),
        (
            {"ratelimit": "limit=100, remaining=50, reset=5", "ratelimit-policy": "100;w=60"},
            {"unnamed": (100, 50, 5_000)},
        ),
        (
            {
                "ratelimit-limit": "10, 10;w=1, 1000;w=86400",
                "ratelimit-remaining": "9",
                "ratelimit-reset": "1",
            },
            {"unnamed": (600, 9, 1_000), "day": (1_000, None, None)},
        ),
        (
            {"x-ratelimit-limit": "50", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1792567690000"},
            {"unnamed": (None, 0, 10_000)},
        ),
        ({"x-ratelimit-limit": "5000;w=60"}, {"unnamed": (5_000, None, None)}),
    ],
)
def test_the_ietf_fields_are_read_in_every_draft(headers: dict[str, str], expected: Reported | None) -> None:
    assert axes(None, headers) == expected


@pytest.mark.parametrize(
    ("url_host", "expected"),
    [
        ("api.openai.com", "openai"),
        ("eu.api.openai.com", "openai"),
        ("my-res.openai.azure.com", "azure"),
        ("api.anthropic.com", "anthropic"),
        ("generativelanguage.googleapis.com", "gemini"),
        ("us-central1-aiplatform.googleapis.com", "gemini"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "bedrock"),
        ("API.GROQ.COM.", "groq"),
        ("api.x.ai", "xai"),
        ("api.mistral.ai", "mistral"),
        ("api.together.xyz", "together"),
        ("api.fireworks.ai", "fireworks"),
        ("api.cerebras.ai", "cerebras"),
        ("api.deepseek.com", "deepseek"),
        ("notapi.x.ai.example", "generic"),
        ("fakeapi.openai.com", "generic"),
        ("127.0.0.1", "generic"),
        ("", "generic"),
    ],
)
def test_a_well_known_host_names_its_dialect(url_host: str, expected: str) -> None:
    assert dialect_of(url_host) == expected
    assert expected in DIALECTS


@pytest.mark.parametrize(
    "headers",
    [
        ANTHROPIC,
        {"x-ratelimit-limit-req-minute": "60"},
        {"x-ratelimit-limit-requests-day": "60"},
        {"x-ratelimit-limit-tokens-generated": "9"},
        {**AZURE, "x-ms-region": "here"},
    ],
)
def test_headers_that_one_provider_alone_sends_are_known_behind_any_host(headers: dict[str, str]) -> None:
    found = read_limits("generic", headers, NOW_MS)
    assert found == read_limits("openai", headers, NOW_MS) == read_limits("never-heard-of", headers, NOW_MS)
    assert found


def test_resets_are_dates_of_the_providers_own_clock() -> None:
    slow = read_limits(
        "anthropic", {**ANTHROPIC, "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, NOW_MS + 3_600_000
    )
    assert slow == read_limits("anthropic", ANTHROPIC, NOW_MS)


def test_an_answer_without_such_headers_has_no_hints() -> None:
    assert read_limits("openai", {"content-type": "application/json", "retry-after": "3"}, NOW_MS) is None


def test_nothing_is_renewed_now_while_nothing_is_left() -> None:
    spent = openai_names(("60", "0", "12ms"), ("1000", "0", "0"))
    assert axes("openai", spent) == {"requests": (60, 0, 12), "tokens": (1_000, 0, None)}


def test_a_limit_of_nothing_with_something_left_is_not_reported() -> None:
    assert axes("openai", {"x-ratelimit-limit-tokens": "0", "x-ratelimit-remaining-tokens": "5"}) == {
        "tokens": (None, 5, None)
    }


def test_zeros_in_every_field_are_no_limit() -> None:
    assert axes("openai", openai_names(("0", "0", "0s"), ("1000", "10", "1s"))) == {
        "tokens": (1_000, 10, 1_000)
    }


@given(
    dialect=st.none() | st.sampled_from(sorted(DIALECTS)),
    headers=st.dictionaries(
        st.sampled_from(sorted(NAMES | {"date", "x-ms-region", "apim-request-id", "retry-after"})),
        st.text(max_size=20)
        | st.integers(-5, 10**16).map(str)
        | st.floats().map(str)
        | st.text('0123456789;=,"rtqw. hms', max_size=40),
    ),
)
def test_no_header_raises_or_reports_what_cannot_be(dialect: str | None, headers: dict[str, str]) -> None:
    hints = read_limits(dialect, headers, NOW_MS)
    if hints is None:
        return
    assert hints.axes
    assert hints.exhausted is None
    for hint in hints.axes.values():
        check(hint)
    assert Hints(hints.axes).to_json()


def check(hint: AxisHint) -> None:
    assert hint != AxisHint()
    assert hint.limit is None or 0 < hint.limit <= MOST
    assert hint.remaining is None or 0 <= hint.remaining <= MOST
    assert hint.reset_ms is None or 0 <= hint.reset_ms <= LONGEST_MS


@pytest.mark.parametrize("name", sorted(ANTHROPIC))
def test_each_of_anthropics_counts_alone_shows_its_dialect_behind_another_host(name: str) -> None:
    axis = name.removeprefix("anthropic-ratelimit-").rpartition("-")[0]
    shown = {key: ANTHROPIC[key] for key in ANTHROPIC if axis in key and key.count("-") == name.count("-")}
    assert axes("generic", shown) == axes("anthropic", shown)
    assert axes("generic", shown)
