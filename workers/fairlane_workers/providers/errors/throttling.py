"""Reads exceptions of other libraries, by class, status, code or text: rate limits, and what may pass."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

import httpx

from fairlane.core.errors import RateLimited
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.groups import leaves
from fairlane_workers.providers.errors.rate_limit_names import (
    TOO_MANY_REQUESTS,
    is_rate_limit,
    mentions_rate_limit,
    names_rate_limit,
)
from fairlane_workers.providers.errors.retry_after import retry_after_ms, wait_in_words_ms
from fairlane_workers.providers.errors.spent import is_spent

_MOST_CAUSES = 10
"""Errors of one chain of causes that are read."""

_FIRST_ERROR = 400
"""The least HTTP status of an error."""

_NO_STATUS = 600
"""Beyond any HTTP status."""

_LONGEST_TEXT = 2000
"""Characters of an error's text that are read: a rate limit is named at its beginning."""

_LONGEST_ANSWER = 100_000
"""Bytes of an answer that are read for its error."""

# Errors of code, whose text quotes data.
_OF_CODE = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, SyntaxError),
    *(TypeError, UnicodeError),
)

# Errors of the operating system that a retry does not change.
_LASTING = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)

_ENDING = r"(?:error|exception|failure)?\)?$"  # Ray's have brackets: RayTaskError(APIConnectionError)
_LATE = re.compile(rf"(?:time[d_]?out|deadline_?exceeded){_ENDING}", re.IGNORECASE)
"""How classes of timeouts are named: ``APITimeoutError``, botocore's ``ReadTimeoutError``."""
_LOST = re.compile(
    r"(?:connection(?:_?closed|_?reset)?|connector|^connect|^protocol)(?:error|exception|failure)\)?$"
    rf"|(?:disconnected|incomplete_?read){_ENDING}",
    re.IGNORECASE,
)
"""How classes of lost connections are named: ``APIConnectionError``, ``ServerDisconnectedError``."""

_OF_GRPC = {
    **{"RESOURCE_EXHAUSTED": TOO_MANY_REQUESTS, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504},
    **{"INTERNAL": 500, "UNKNOWN": 500, "DATA_LOSS": 500, "UNIMPLEMENTED": 501, "ABORTED": 409},
    **{"INVALID_ARGUMENT": 400, "UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "NOT_FOUND": 404},
}
"""The HTTP status of gRPC's names: github.com/googleapis/googleapis/blob/master/google/rpc/code.proto."""


@dataclass(frozen=True, slots=True)
class Throttled:
    """A service has rejected a call by its rate: the longest wait that it named, in ms, or ``None``."""

    retry_after_ms: int | None = None


def throttled(error: BaseException, now_ms: int) -> Throttled | None:
    """How a service throttles the caller, if that is why ``error`` was raised; ``None`` if it is not.

    Reads the error and what it was raised ``from``. A class, a code or a status is believed first, then the
    service's answer by the rules of `is_rate_limit`. Any words of the text count only where the error has no
    HTTP status. ``now_ms`` (epoch milliseconds) turns a date of Retry-After into a duration. An account
    without money answers 429, too, but no wait helps it: such an error is no rate limit. Never raises.
    """
    chain = list(_chain(error))
    if any(_is_spent(each) for each in chain):
        return None
    if not any(_named(each) or _rejected(each) for each in chain) and not _by_name(error, chain):
        return None
    waits = [wait for each in chain if (wait := named_wait_ms(each, now_ms)) is not None]
    return Throttled(max(waits, default=None))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised ``from``, without errors that were handled meanwhile.

    Of a group, which says nothing itself, its errors and their causes follow.
    """
    waiting = [error]
    for _ in range(_MOST_CAUSES):
        if not waiting:
            return
        each = waiting.pop()
        yield each
        if each.__cause__ is not None:
            waiting.append(each.__cause__)
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(reversed(leaves(each)))


def telling(error: BaseException) -> BaseException:
    """The error that says how a call has ended: this one, or the first of those it was raised ``from``.

    One with an HTTP status, a timeout or a lost connection says so. A ``ValueError`` or an error of code is
    final, whatever it was raised from. Of a group of such errors the one with the lowest status counts.
    """
    each: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if each is None or (isinstance(each, (ValueError, *_OF_CODE)) and not _tells(each)):
            break
        within = leaves(each)
        if all(_tells(leaf) for leaf in within):
            return min(within, key=lambda leaf: http_status(leaf) or _NO_STATUS)
        each = each.__cause__
    return error


def _tells(error: BaseException) -> bool:
    return http_status(error) is not None or is_late(error) or is_lost(error)


def is_late(error: BaseException) -> bool:
    """Whether an error is a timeout, by its kind or its name."""
    return isinstance(error, TimeoutError | httpx.TimeoutException) or _named_like(_LATE, error)


def is_lost(error: BaseException) -> bool:
    """Whether an error is a lost connection, by its kind or name, or another error of the system."""
    known = isinstance(error, OSError | httpx.TransportError) and not isinstance(error, _LASTING)
    return known or _named_like(_LOST, error)


def _named_like(pattern: re.Pattern[str], error: BaseException) -> bool:
    """By its own name: a base's name says less, as ``redis.AuthenticationError`` is a ``ConnectionError``."""
    return pattern.search(type(error).__name__) is not None


def _is_spent(error: BaseException) -> bool:
    """By its codes, or by the provider's answer."""
    return is_spent(ErrorBody(tuple(_codes(error)), None)) or is_spent(_answer(error))


def _rejected(error: BaseException) -> bool:
    """Whether its HTTP status, with the service's answer or the error's first words, says so."""
    status = http_status(error)
    if status is None or status < _FIRST_ERROR:
        return False
    return any(is_rate_limit(each, status) for each in (_answer(error), ErrorBody((), _text(error))))


def service_error(error: BaseException) -> ErrorBody:
    """The service's own error, or the error's codes and text where it keeps none."""
    answer = _answer(error)
    if answer.message or answer.kinds:
        return answer
    return ErrorBody(tuple(code.lower() for code in _codes(error)), _text(error))


def _answer(error: BaseException) -> ErrorBody:
    """The service's own error. The clients of OpenAI and Anthropic keep it as ``body``, others have bytes."""
    try:
        if (body := _get(error, "body")) is not None:
            return ErrorBody.of(body)
        content = _get(_get(error, "response"), "content")
        if isinstance(content, bytes) and len(content) <= _LONGEST_ANSWER:
            return ErrorBody.parse(content)
    except Exception:  # noqa: BLE001, S110 - any object may have these names
        pass
    return ErrorBody((), None)


def _named(error: BaseException) -> bool:
    """Whether its status, its code, or the name of its class or a base says so."""
    if http_status(error) == TOO_MANY_REQUESTS:
        return True
    classes = (each.__name__ for each in type(error).__mro__)
    return any(names_rate_limit(name) for name in (*_codes(error), *classes))


def _by_name(error: BaseException, chain: list[BaseException]) -> bool:
    if isinstance(error, _OF_CODE) or any(http_status(each) is not None for each in chain):
        return False
    text = _text(error)
    return text is not None and mentions_rate_limit(text)


def http_status(error: BaseException) -> int | None:
    """The HTTP status of an error, under any of the names that libraries use."""
    response = _get(error, "response")
    for value in (
        *(_get(error, name) for name in ("status_code", "status", "http_status", "code")),
        *(_get(response, name) for name in ("status_code", "status")),
        _get(_get(response, "ResponseMetadata"), "HTTPStatusCode"),
    ):
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < _NO_STATUS:
            return int(value)
    return _status_of_grpc(error)


def _status_of_grpc(error: BaseException) -> int | None:
    """The status that the code of a ``grpc.RpcError`` stands for; its ``code`` is a method."""
    if not any(each.__name__ == "RpcError" for each in type(error).__mro__):
        return None
    try:
        code = error.code()  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - any class may have this name
        return None
    return _OF_GRPC.get(code.name) if isinstance(code, Enum) else None


def _codes(error: BaseException) -> Iterator[str]:
    """Its code, status or type as a word, and botocore's ``response["Error"]["Code"]``."""
    for value in (
        *(_get(error, name) for name in ("code", "status", "type")),
        _get(_get(_get(error, "response"), "Error"), "Code"),
    ):
        if isinstance(value, str):
            yield value


def named_wait_ms(error: BaseException, now_ms: int) -> int | None:
    """Milliseconds that an error asks to wait: by its ``retry_after`` in seconds, a header, or its text."""
    given = _get(error, "retry_after")
    if isinstance(given, str) and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", given, re.ASCII):
        given = float(given)
    if isinstance(given, int | float | timedelta) and not isinstance(given, bool):
        return RateLimited(retry_after=given).retry_after_ms
    response = _get(error, "response")
    for headers in (
        *(_get(response, "headers"), _get(error, "headers")),
        _get(_get(response, "ResponseMetadata"), "HTTPHeaders"),
    ):
        if (wait := retry_after_ms(texts_of(headers), now_ms)) is not None:
            return wait
    return wait_in_words_ms(_text(error), now_ms)


def _text(error: BaseException) -> str | None:
    try:
        return str(error)[:_LONGEST_TEXT]
    except Exception:  # noqa: BLE001 - a user's class
        return None


def texts_of(headers: Any) -> dict[str, str]:
    """Headers by lower-case name; none if ``headers`` are no mapping."""
    try:
        return {str(name).lower(): str(value) for name, value in dict(headers or {}).items()}
    except Exception:  # noqa: BLE001 - any object may have that name
        return {}


def _get(owner: Any, name: str) -> Any:
    """An entry of a mapping, or an attribute; ``None`` if there is none or it cannot be read."""
    try:
        return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - a user's class
        return None
