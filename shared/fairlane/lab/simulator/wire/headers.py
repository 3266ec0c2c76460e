"""Writes rate-limit headers under the names that each vendor uses, each with its trap."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime

from fairlane.lab.simulator.config import HeaderStyle
from fairlane.lab.simulator.limits.admission import Axis, Level
from fairlane.lab.simulator.wire.dialect import Dialect, RetryAfterForm

_DAY_SECONDS = 86_400
_TOKENS = ("tokens", "input", "output")
_RETRY_AFTER: Mapping[HeaderStyle, tuple[RetryAfterForm, ...]] = {
    "azure": ("milliseconds", "seconds"),
    "fireworks": (),
}
_AZURE_PERIODS_S: Mapping[Axis, int] = {"requests": 10, "tokens": 60}

Names = Iterable[tuple[str, Axis]]
"""``(name in the header, axis)`` of each axis that a vendor reports."""

_OPENAI: Names = (("requests", "requests"), ("tokens", "tokens"))
_GROQ: Names = (("requests", "day"), ("tokens", "tokens"))
_FIREWORKS: Names = (("requests", "requests"), ("tokens-prompt", "input"), ("tokens-generated", "output"))
_CEREBRAS: Names = (("requests-day", "day"), ("requests-minute", "requests"), ("tokens-minute", "tokens"))
_MISTRAL: Names = (("req-minute", "requests"), ("tokens-minute", "tokens"))


def retry_after_forms(style: HeaderStyle, dialect: Dialect) -> tuple[RetryAfterForm, ...]:
    """The forms in which ``style`` writes a Retry-After."""
    return dialect.retry_after_forms if style == "protocol" else _RETRY_AFTER.get(style, ("seconds",))


def retry_after_headers(forms: Sequence[RetryAfterForm], wait_ms: int, now_ms: int) -> dict[str, str]:
    """``wait_ms`` as headers. Coarser forms round up, so a client may obey any of them."""
    headers: dict[str, str] = {}
    for form in forms:
        match form:
            case "milliseconds":
                headers["retry-after-ms"] = str(wait_ms)
            case "seconds":
                headers["retry-after"] = str(_seconds(wait_ms))
            case "fraction":
                headers["retry-after"] = f"{wait_ms / 1000:.3f}"
            case "date":
                at = datetime.fromtimestamp(_seconds(now_ms + wait_ms), tz=UTC)
                headers["retry-after"] = format_datetime(at, usegmt=True)
    return headers


def limit_headers(
    style: HeaderStyle, dialect: Dialect, levels: Mapping[Axis, Level], now_ms: int
) -> dict[str, str]:
    """Limit, remaining amount and reset of each axis that ``style`` reports."""
    match style:
        case "protocol":
            return dialect.limit_headers(levels, now_ms)
        case "groq":  # the limit named requests is that of the day
            return _ratelimit(levels, _GROQ, duration)
        case "azure":
            return azure_limit_headers(levels)
        case "together":
            return _together(levels)
        case "mistral":
            return _mistral(levels)
        case "fireworks":
            return _ratelimit(levels, _FIREWORKS)
        case "cerebras":
            return _ratelimit(levels, _CEREBRAS, lambda reset_ms: f"{reset_ms / 1000:.3f}")
        case "xai":  # resets are epoch seconds
            return _ratelimit(levels, _OPENAI, lambda reset_ms: str(_seconds(now_ms + reset_ms)))
        case "ietf":
            return _ietf(levels)


def rejection_headers(style: HeaderStyle, axis: str | None, headers: Mapping[str, str]) -> dict[str, str]:
    """``headers`` as a rejection by ``axis`` carries them.

    Azure adds the axis as ``x-ratelimit-type``. For tokens it has been observed to answer ``retry-after: 1``,
    ``retry-after-ms: 0`` and ``x-ratelimit-reset-tokens: 0``, whatever the wait is.
    """
    sent = dict(headers)
    if style != "azure":
        return sent
    if "x-ratelimit-limit-requests" in sent or "x-ratelimit-limit-tokens" in sent:
        sent["x-ratelimit-type"] = "tokens" if axis in _TOKENS else "requests"
    if axis in _TOKENS:
        observed = {"retry-after": "1", "retry-after-ms": "0", "x-ratelimit-reset-tokens": "0"}
        sent |= {name: value for name, value in observed.items() if name in sent}
    return sent


def openai_limit_headers(levels: Mapping[Axis, Level]) -> dict[str, str]:
    """OpenAI's headers; it reports requests and tokens of the minute, and resets as durations."""
    return _ratelimit(levels, _OPENAI, duration)


def azure_limit_headers(levels: Mapping[Axis, Level]) -> dict[str, str]:
    """OpenAI's names with resets in whole seconds, the length of a period, and the limit of one period."""
    headers = {"x-ms-region": "Simulated"}
    for axis, seconds in _AZURE_PERIODS_S.items():
        level = levels.get(axis)
        if level is not None:
            limit = level.limit * seconds // 60
            headers[f"x-ratelimit-limit-{axis}"] = str(limit)
            headers[f"x-ratelimit-remaining-{axis}"] = str(min(limit, level.remaining))
            headers[f"x-ratelimit-reset-{axis}"] = str(_seconds(level.reset_ms))
            headers[f"x-ratelimit-renewalperiod-{axis}"] = str(seconds)
    return headers


def duration(ms: int) -> str:
    """Milliseconds as OpenAI's reset headers write them: ``12ms``, ``1.5s``, ``6m0s``, ``2h0m0s``."""
    if ms < 1000:
        return f"{ms}ms"
    minutes, rest_ms = divmod(ms, 60_000)
    seconds = f"{rest_ms / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if not minutes:
        return seconds
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + f"{minutes}m{seconds}"


def _ratelimit(
    levels: Mapping[Axis, Level], names: Names, reset: Callable[[int], str] | None = None
) -> dict[str, str]:
    """``x-ratelimit-limit-NAME`` and so on; ``reset`` writes the milliseconds to the reset, if at all."""
    headers: dict[str, str] = {}
    for name, axis in names:
        level = levels.get(axis)
        if level is None:
            continue
        headers[f"x-ratelimit-limit-{name}"] = str(level.limit)
        headers[f"x-ratelimit-remaining-{name}"] = str(level.remaining)
        if reset is not None:
            headers[f"x-ratelimit-reset-{name}"] = reset(level.reset_ms)
    return headers


def _together(levels: Mapping[Axis, Level]) -> dict[str, str]:
    """Limits per second, not per minute."""
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
    """Both sets of names that Mistral sends: those of the minute, and tokens "by size"."""
    headers = _ratelimit(levels, _MISTRAL)
    tokens = levels.get("tokens")
    if tokens is not None:
        headers["x-ratelimitbysize-limit-minute"] = str(tokens.limit)
        headers["x-ratelimitbysize-remaining-minute"] = str(tokens.remaining)
        headers["ratelimitbysize-reset"] = str(_seconds(tokens.reset_ms))
    return headers


def _ietf(levels: Mapping[Axis, Level]) -> dict[str, str]:
    """The axis with the least left, without its name, as draft-ietf-httpapi-ratelimit-headers-06 says."""
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
