"""Reads the IETF's ``RateLimit`` fields of all drafts, and the older ``X-RateLimit`` ones."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fairlane.model.hints import Axis
from fairlane_workers.providers.limits.amounts import number, reset_ms
from fairlane_workers.providers.limits.clocks import Axes, add, hint_of

NAMES = frozenset(
    {"ratelimit", "ratelimit-policy"}
    | {f"{x}ratelimit-{word}" for x in ("", "x-") for word in ("limit", "remaining", "reset")}
)

_LONGEST, _MOST_ITEMS = 1000, 16
_DAY_S = 86_400
_AXIS_OF_UNIT: dict[str, Axis] = {"requests": "requests", "concurrent-requests": "concurrency"}
_PER_MINUTE: tuple[Axis, ...] = ("requests", "unnamed")


class _Item(NamedTuple):
    name: str
    params: dict[str, str]


class _Policy(NamedTuple):
    """The limit of a window in seconds; the axis is ``None`` for a unit that Fairlane does not count.

    Drafts with units (``qu``) and quotas (``q``) count requests if they name no unit. Older drafts, and the
    ``X-RateLimit`` fields, name no unit at all: some providers count tokens in them.
    """

    quota: float | None
    window_s: float | None
    axis: Axis | None


def read_fields(headers: Mapping[str, str], now_ms: int) -> Axes:
    """``RateLimit`` and ``RateLimit-Policy``, or limit, remaining and reset in fields of their own.

    A limit without a window is dropped: its period may be a second or a month. ``remaining`` is the rest of
    the window.
    """
    policies = dict(_policies(headers.get("ratelimit-policy")))
    axes: Axes = {}
    levels = list(_items(headers.get("ratelimit")))
    if any("r" in item.params for item in levels):
        _read_levels(levels, policies, axes, now_ms)
    else:
        # The drafts of 2023 put all three into one field: limit=100, remaining=50, reset=5.
        single = dict(item.name.split("=", 1) for item in levels if "=" in item.name)
        _read_single(headers, single, policies, axes, now_ms)
    return axes


def _read_levels(levels: list[_Item], policies: dict[str, _Policy], axes: Axes, now_ms: int) -> None:
    if len(levels) == len(policies) == 1:  # Hugging Face names its only policy otherwise
        policies = dict.fromkeys([levels[0].name], *policies.values())
    for name, params in levels:
        policy = policies.get(name) or _Policy(None, None, "requests")
        _add_axis(axes, policy, number(params.get("r")), reset_ms(params.get("t"), now_ms))
    for name, policy in policies.items():
        if all(item.name != name for item in levels):
            _add_axis(axes, policy, None, None)


def _read_single(
    headers: Mapping[str, str],
    single: Mapping[str, str],
    policies: dict[str, _Policy],
    axes: Axes,
    now_ms: int,
) -> None:
    limit, remaining, reset = (
        single.get(word) or headers.get(f"ratelimit-{word}") or headers.get(f"x-ratelimit-{word}")
        for word in ("limit", "remaining", "reset")
    )
    # "100, 100;w=60": the limit that is nearest, and then every policy.
    stated = dict(_policies(limit))
    known = [
        policy for policy in (stated | policies).values() if policy.window_s or policy.axis not in _PER_MINUTE
    ]
    quota = number(limit.split(",", 1)[0].split(";", 1)[0]) if limit else None
    mine = next(
        (policy for policy in known if policy.axis in _PER_MINUTE and quota in (None, policy.quota)), None
    )
    policy = mine or _Policy(quota, None, "unnamed")
    _add_axis(axes, policy, number(remaining), reset_ms(reset, now_ms))
    for other in known:
        if other is not mine:
            _add_axis(axes, other, None, None)


def _add_axis(axes: Axes, policy: _Policy, remaining: float | None, reset: int | None) -> None:
    quota, window_s, axis = policy
    if axis is None:
        return
    limit: float | None = None
    if axis == "concurrency":
        limit = quota
    elif window_s and window_s >= _DAY_S:
        axis, limit = "day", None if quota is None else quota * _DAY_S / window_s
    elif window_s and quota is not None:
        limit = quota * 60 / window_s
    hint = hint_of(limit, remaining, reset)
    if hint is not None:
        add(axes, axis, hint)


def _policies(text: str | None) -> Iterator[tuple[str, _Policy]]:
    for name, params in _items(text):
        window_s = number(params.get("w"))
        quota = number(params.get("q", name))
        unit = params.get("qu", "").lower()
        axis = _AXIS_OF_UNIT.get(unit) if unit else "requests" if "q" in params else "unnamed"
        yield name, _Policy(quota, window_s or None, axis)


def _items(text: str | None) -> Iterable[_Item]:
    """The members of a structured list, read leniently: a name or number, and its parameters."""
    if not text:
        return
    for member in text[:_LONGEST].split(",", _MOST_ITEMS)[:_MOST_ITEMS]:
        head, *rest = member.split(";")
        params = (part.split("=", 1) for part in rest if "=" in part)
        yield _Item(_bare(head), {_bare(key).lower(): _bare(value) for key, value in params})


def _bare(text: str) -> str:
    return text.strip().strip('"').strip()
