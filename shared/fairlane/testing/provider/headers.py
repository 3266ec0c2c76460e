"""The names that other vendors give the same hints, each with its trap."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.testing.provider.config import HeaderStyle
from fairlane.testing.provider.dialect import Dialect, RetryAfterForm
from fairlane.testing.provider.limits import Axis, Level
from fairlane.testing.provider.protocols.azure_openai import azure_limit_headers
from fairlane.testing.provider.protocols.openai_chat import duration

_DAY_SECONDS = 86_400
_TOKENS = ("tokens", "input", "output")


def retry_after_forms(style: HeaderStyle, dialect: Dialect) -> tuple[RetryAfterForm, ...]:
    """How ``style`` writes a Retry-After."""
    match style:
        case "protocol":
            return dialect.retry_after_forms
        case "azure":
            return ("milliseconds", "seconds")
        case "fireworks":
            return ()
        case "groq" | "together" | "mistral" | "cerebras" | "xai" | "ietf":
            return ("seconds",)


def limit_headers(
    style: HeaderStyle, dialect: Dialect, levels: Mapping[Axis, Level], now_ms: int
) -> dict[str, str]:
    """Limit, remaining and reset of the axes that ``style`` tells of."""
    match style:
        case "protocol":
            return dialect.limit_headers(levels, now_ms)
        case "groq":
            return _groq(levels)
        case "azure":
            return azure_limit_headers(levels)
        case "together":
            return _together(levels)
        case "mistral":
            return _mistral(levels)
        case "fireworks":
            return _fireworks(levels)
        case "cerebras":
            return _cerebras(levels)
        case "xai":
            return _xai(levels, now_ms)
        case "ietf":
            return _ietf(levels)


def refusal_headers(style: HeaderStyle, axis: str | None, headers: Mapping[str, str]) -> dict[str, str]:
    """``headers`` as a refusal by ``axis`` carries them.

    Azure adds the axis as ``x-ratelimit-type``. Where that is tokens, it has been seen to answer
    ``retry-after: 1``, ``retry-after-ms: 0`` and ``x-ratelimit-reset-tokens: 0``, whatever the wait is.
    """
    told = dict(headers)
    if style != "azure":
        return told
    if "x-ratelimit-limit-requests" in told or "x-ratelimit-limit-tokens" in told:
        told["x-ratelimit-type"] = "tokens" if axis in _TOKENS else "requests"
    if axis in _TOKENS:
        seen = {"retry-after": "1", "retry-after-ms": "0", "x-ratelimit-reset-tokens": "0"}
        told |= {name: value for name, value in seen.items() if name in told}
    return told


def _groq(levels: Mapping[Axis, Level]) -> dict[str, str]:
    """OpenAI's names, but ``-requests`` are those of the day."""
    headers: dict[str, str] = {}
    named: tuple[tuple[str, Axis], ...] = (("requests", "day"), ("tokens", "tokens"))
    for name, axis in named:
        if axis in levels:
            headers[f"x-ratelimit-limit-{name}"] = str(levels[axis].limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(levels[axis].remaining)
            headers[f"x-ratelimit-reset-{name}"] = duration(levels[axis].reset_ms)
    return headers


def _together(levels: Mapping[Axis, Level]) -> dict[str, str]:
    """Limits a second."""
    headers: dict[str, str] = {}
    requests, tokens = levels.get("requests"), levels.get("tokens")
    if requests is not None:
        headers["x-ratelimit-limit"] = f"{requests.limit / 60:.6g}"
        headers["x-ratelimit-remaining"] = str(requests.remaining)
        headers["x-ratelimit-reset"] = str(_seconds(requests.reset_ms))
    if tokens is not None:
        headers["x-tokenlimit-limit"] = f"{tokens.limit / 60:.6g}"
        headers["x-tokenlimit-remaining"] = str(tokens.remaining)
    return headers


def _mistral(levels: Mapping[Axis, Level]) -> dict[str, str]:
    """Both of its dialects: tokens by size, and requests and tokens of the minute."""
    headers: dict[str, str] = {}
    requests, tokens = levels.get("requests"), levels.get("tokens")
    if requests is not None:
        headers["x-ratelimit-limit-req-minute"] = str(requests.limit)
        headers["x-ratelimit-remaining-req-minute"] = str(requests.remaining)
    if tokens is not None:
        headers["x-ratelimit-limit-tokens-minute"] = str(tokens.limit)
        headers["x-ratelimit-remaining-tokens-minute"] = str(tokens.remaining)
        headers["x-ratelimitbysize-limit-minute"] = str(tokens.limit)
        headers["x-ratelimitbysize-remaining-minute"] = str(tokens.remaining)
        headers["ratelimitbysize-reset"] = str(_seconds(tokens.reset_ms))
    return headers


def _fireworks(levels: Mapping[Axis, Level]) -> dict[str, str]:
    """Prompt and generated tokens apart, and no resets."""
    headers: dict[str, str] = {}
    named: tuple[tuple[str, Axis], ...] = (
        ("requests", "requests"),
        ("tokens-prompt", "input"),
        ("tokens-generated", "output"),
    )
    for name, axis in named:
        if axis in levels:
            headers[f"x-ratelimit-limit-{name}"] = str(levels[axis].limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(levels[axis].remaining)
    return headers


def _cerebras(levels: Mapping[Axis, Level]) -> dict[str, str]:
    """Requests of the day and tokens of the minute; resets in seconds, with fractions."""
    headers: dict[str, str] = {}
    named: tuple[tuple[str, Axis], ...] = (
        ("requests-day", "day"),
        ("requests-minute", "requests"),
        ("tokens-minute", "tokens"),
    )
    for name, axis in named:
        if axis in levels:
            headers[f"x-ratelimit-limit-{name}"] = str(levels[axis].limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(levels[axis].remaining)
            headers[f"x-ratelimit-reset-{name}"] = f"{levels[axis].reset_ms / 1000:.3f}"
    return headers


def _xai(levels: Mapping[Axis, Level], now_ms: int) -> dict[str, str]:
    """OpenAI's names; resets are times, in epoch seconds."""
    headers: dict[str, str] = {}
    named: tuple[Axis, ...] = ("requests", "tokens")
    for axis in named:
        if axis in levels:
            headers[f"x-ratelimit-limit-{axis}"] = str(levels[axis].limit)
            headers[f"x-ratelimit-remaining-{axis}"] = str(levels[axis].remaining)
            headers[f"x-ratelimit-reset-{axis}"] = str(_seconds(now_ms + levels[axis].reset_ms))
    return headers


def _ietf(levels: Mapping[Axis, Level]) -> dict[str, str]:
    """The one axis with the least left, unnamed, as draft-ietf-httpapi-ratelimit-headers-06 has it."""
    if not levels:
        return {}
    axis, level = min(levels.items(), key=lambda item: item[1].remaining / max(1, item[1].limit))
    return {
        "ratelimit-limit": str(level.limit),
        "ratelimit-remaining": str(level.remaining),
        "ratelimit-reset": str(_seconds(level.reset_ms)),
        "ratelimit-policy": f"{level.limit};w={_DAY_SECONDS if axis == 'day' else 60}",
    }


def _seconds(ms: int) -> int:
    return -(-ms // 1000)
