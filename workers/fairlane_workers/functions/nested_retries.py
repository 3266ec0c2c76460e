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
_looked_at = 0
_MARK = "__fairlane_original__"
_MORE_THAN_ANY = 1_000_000
"""Retries that no client makes."""


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
    """Change the SDKs that have been imported, each once; looks for them only after further imports."""
    global _looked_at
    if (count := len(sys.modules)) == _looked_at:
        return
    complete = True
    for name, loaded in list(sys.modules.items()):
        if name.endswith(_ENDS):
            complete &= not getattr(getattr(loaded, "__spec__", None), "_initializing", False)
            for key, changes in _CHANGES.items():
                if f".{name}".endswith(f".{key}"):
                    for path, instead in changes.items():
                        _change(loaded, path, instead)
    if complete:
        _looked_at = count


def _change(module: Any, path: str, instead: Callable[..., Callable[..., Any]]) -> None:
    """Replace a function by ``instead(original)``; does nothing if this version of the SDK lacks it."""
    *owners, name = path.split(".")
    try:
        owner = functools.reduce(getattr, owners, module)
        original = getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - a module may import as it is read
        return
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


def _exhausted(original: Callable[..., Any]) -> Callable[..., Any]:
    """Under a lane, a request counts its ``retries`` so far as more than any client makes."""

    def changed(*args: Any, **kwargs: Any) -> Any:
        if _under_lane.get():
            kwargs.setdefault("retries", _MORE_THAN_ANY)
        return original(*args, **kwargs)

    return changed


def _submitting(original: Callable[..., Any]) -> Callable[..., Any]:
    """What a thread pool is given runs under a lane where its giver does, on whatever thread."""

    def changed(self: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return original(self, functools.partial(_run, _under_lane.get(), function), *args, **kwargs)

    return changed


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    """A thread that is started under a lane runs under it."""

    def changed(self: Any) -> None:
        if _under_lane.get():
            self.run = functools.partial(_run, True, self.run)
        original(self)

    return changed


def _run(under: bool, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    token = _under_lane.set(under)
    try:
        return function(*args, **kwargs)
    finally:
        _under_lane.reset(token)


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
    "threading": {"Thread.start": _starting},
    "concurrent.futures.thread": {"ThreadPoolExecutor.submit": _submitting},
    # Of every SDK that Stainless makes: OpenAI's, Anthropic's, Groq's, Together's …
    "_models": {"FinalRequestOptions.get_max_retries": _answering(0)},
    # Of every SDK that Fern makes: Cohere's, Reka's …
    "core.http_client": {"HttpClient.request": _exhausted, "AsyncHttpClient.request": _exhausted},
    "google.genai._api_client": {
        "BaseApiClient._request": _without_retries("_request_once"),
        "BaseApiClient._async_request": _without_retries("_async_request_once"),
    },
    "litellm": {"completion_with_retries": _raising, "acompletion_with_retries": _raising},
    "botocore.retryhandler": {"RetryHandler.__call__": _answering(None)},  # "legacy" mode
    "botocore.retries.standard": {"RetryPolicy.should_retry": _answering(False)},  # "standard", "adaptive"
}
"""The functions that retry a call in each SDK, by the end of their module's name, and their replacements."""

_ENDS = tuple(_CHANGES)
