"""Switches off the retries of SDKs while a function runs under a lane: the scheduler retries instead.

An SDK that retries a 429 by itself hides it from the lane, and calls more often than the lane grants. Only
calls within `without_nested_retries` are affected; the same SDK retries as before elsewhere in the process.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

_under_lane: ContextVar[bool] = ContextVar("under_lane", default=False)
_changing = Lock()
_MARK = "__fairlane_original__"


@contextmanager
def without_nested_retries() -> Iterator[None]:
    """Within it, no imported SDK retries a call, on this thread or task and those that it starts."""
    _change_loaded()
    token = _under_lane.set(True)
    try:
        yield
    finally:
        _under_lane.reset(token)


def _change_loaded() -> None:
    """Change the SDKs that have been imported, each once."""
    for module, changes in _CHANGES.items():
        loaded = sys.modules.get(module)
        if loaded is None:
            continue
        for path, instead in changes.items():
            _change(loaded, path, instead)


def _change(module: Any, path: str, instead: Callable[..., Callable[..., Any]]) -> None:
    """Replace a function by ``instead(original)``; does nothing if this version of the SDK lacks it."""
    *owners, name = path.split(".")
    owner = functools.reduce(lambda found, part: getattr(found, part, None), owners, module)
    original = getattr(owner, name, None)
    if original is None or hasattr(original, _MARK):
        return
    with _changing:
        if not hasattr(getattr(owner, name), _MARK):
            changed = functools.wraps(original)(instead(original))
            setattr(changed, _MARK, original)
            setattr(owner, name, changed)


def _answering(value: object) -> Callable[..., Callable[..., Any]]:
    """Under a lane, ``value`` instead of what the original returns."""

    def instead(original: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*args: Any, **kwargs: Any) -> Any:
            return value if _under_lane.get() else original(*args, **kwargs)

        return changed

    return instead


def _without_retries(name: str) -> Callable[..., Callable[..., Any]]:
    """Under a lane, the client's method ``name``, which makes one request and does not repeat it."""

    def instead(original: Callable[..., Any]) -> Callable[..., Any]:
        def changed(self: Any, http_request: Any, http_options: Any = None, stream: bool = False) -> Any:
            if _under_lane.get():
                return getattr(self, name)(http_request, stream)
            return original(self, http_request, http_options, stream)

        return changed

    return instead


def _raising(original: Callable[..., Any]) -> Callable[..., Any]:
    """Under a lane, the error that is to be retried is raised."""

    def changed(*args: Any, **kwargs: Any) -> Any:
        error = sys.exc_info()[1]
        if _under_lane.get() and error is not None:
            raise error
        return original(*args, **kwargs)

    return changed


_CHANGES: dict[str, dict[str, Callable[..., Callable[..., Any]]]] = {
    "openai._models": {"FinalRequestOptions.get_max_retries": _answering(0)},
    "anthropic._models": {"FinalRequestOptions.get_max_retries": _answering(0)},
    "google.genai._api_client": {
        "BaseApiClient._request": _without_retries("_request_once"),
        "BaseApiClient._async_request": _without_retries("_async_request_once"),
    },
    "litellm": {"completion_with_retries": _raising, "acompletion_with_retries": _raising},
    "botocore.retryhandler": {"RetryHandler.__call__": _answering(None)},  # "legacy" mode
    "botocore.retries.standard": {"RetryPolicy.should_retry": _answering(False)},  # "standard", "adaptive"
}
"""The functions that retry a call in each SDK, by module, and their replacements."""
