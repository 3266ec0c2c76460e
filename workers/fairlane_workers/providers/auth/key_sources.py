"""Where a key that changes comes from: a file, or a command that prints it."""

import os
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fairlane.core.figures import plain_number
from fairlane.core.json_answers import json_or
from fairlane_workers.providers.auth.authorizer import CredentialError, fits_header

COMMAND_S = 30.0
"""How long a command may take."""

MOST_BYTES = 64 * 1024
"""Largest file or output of a command; servers take shorter headers only."""

MARGIN_S = 60.0
"""How long before its stated expiry a key is asked for again; half of what is left, if that is less."""

_TOKENS = ("access_token", "accessToken", "token")
_ENDS = ("expires_on", "expirationTimestamp", "expiration", "expiresOn")


class ReadKey(NamedTuple):
    """A key; ``good_s``: how long it is used before it is asked for again, ``None``: until it changes."""

    text: str
    good_s: float | None = None


class KeySource(ABC):
    """Reads a key, in a thread: each method may block."""

    @abstractmethod
    def read(self, *, anew: bool) -> ReadKey | None:
        """The key; ``None`` if it has not changed since it was read last. ``anew``: read it in any case.

        Raises `CredentialError`, whose text quotes no key.
        """

    def close(self) -> None:  # noqa: B027 - a file needs none
        """End what runs."""


class KeyFile(KeySource):
    """A file with nothing but a key, such as Kubernetes and Docker mount for a secret."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] | None = None

    def read(self, *, anew: bool) -> ReadKey | None:
        """See `KeySource.read`. Time, size and place of the file say whether it has changed."""
        try:
            with self._path.open("rb") as file:
                known = os.fstat(file.fileno())
                stamp = (known.st_mtime_ns, known.st_size, known.st_ino, known.st_dev)
                if stamp == self._stamp and not anew:
                    return None
                raw = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise CredentialError(f"api_key_file {self._path} cannot be read: {error.strerror}") from None
        key = ReadKey(usable(raw, f"api_key_file {self._path}"))
        self._stamp = stamp  # one that is half written is read again
        return key


class KeyCommand(KeySource):
    """A program that prints a key. What it writes to standard error is dropped: it may hold one."""

    def __init__(self, command: Sequence[str], lasts_s: float, most_s: float = COMMAND_S) -> None:
        """``lasts_s``: how long a key without a stated expiry is used."""
        self._command, self._lasts_s, self._most_s = tuple(command), lasts_s, most_s
        self._running: subprocess.Popen[bytes] | None = None
        self._lock, self._closed = threading.Lock(), False

    def read(self, *, anew: bool) -> ReadKey | None:
        """See `KeySource.read`."""
        name = f"api_key_command {self._command[0]}"
        try:
            with self._lock:
                if self._closed:
                    raise CredentialError("the worker stops")
                child = self._running = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError as error:
            raise CredentialError(f"{name} cannot be started: {error.strerror}") from None
        try:
            raw, _ = child.communicate(timeout=self._most_s)
        except subprocess.TimeoutExpired:
            _kill(child)
            raise CredentialError(f"{name} has not ended within {self._most_s:g} s") from None
        finally:
            self._running = None
        if child.returncode:
            problem = f"{name} ended with {child.returncode}: run it by hand as the workers' user"
            raise CredentialError(problem)
        return _printed(raw, name, self._lasts_s)

    def close(self) -> None:
        """See `KeySource.close`."""
        with self._lock:
            self._closed = True
            if (child := self._running) is not None:
                _kill(child)


def usable(raw: bytes, name: str) -> str:
    """The key without surrounding space. Raises `CredentialError` for one that no HTTP header can carry."""
    if len(raw) > MOST_BYTES:
        raise CredentialError(f"{name} has more than {MOST_BYTES // 1024} KiB")
    text = raw.decode("utf-8-sig", "replace").strip()
    if not text:
        raise CredentialError(f"{name} has no key in it")
    if not fits_header(text):
        raise CredentialError(f"{name} holds characters that no HTTP header can carry")
    return text


def _printed(raw: bytes, name: str, lasts_s: float) -> ReadKey:
    """The key in a command's output: the whole of it, or of JSON the token."""
    if not raw.lstrip().startswith(b"{"):
        return ReadKey(usable(raw, name), lasts_s)
    document = json_or(raw)
    if document is None:
        raise CredentialError(f"{name} prints JSON that cannot be read")
    inner = document.get("status")
    fields: Mapping[str, Any] = inner if isinstance(inner, dict) else document
    token = next((found for each in _TOKENS if isinstance(found := fields.get(each), str)), None)
    if token is None:
        raise CredentialError(f"{name} prints JSON without access_token")
    left_s = _left_s(fields)
    if left_s is None:
        return ReadKey(usable(token.encode(), name), lasts_s)
    if left_s <= 0:
        raise CredentialError(f"{name} prints a token that has ended already")
    return ReadKey(usable(token.encode(), name), max(left_s - MARGIN_S, left_s / 2))


def _left_s(fields: Mapping[str, Any]) -> float | None:
    """Seconds until a token's stated end: a Unix time, a date with its zone, or a number of seconds."""
    with suppress(ValueError, TypeError, OverflowError):
        if (left := fields.get("expires_in")) is not None:
            return _finite(left)
    now = datetime.now(UTC)
    for end in (fields.get(each) for each in _ENDS):
        if end is None:
            continue
        with suppress(ValueError, TypeError, OverflowError):
            return _finite(end) - now.timestamp()
        with suppress(ValueError, TypeError, OverflowError):
            stated = datetime.fromisoformat(str(end))
            if stated.tzinfo is not None:  # a local time may be another machine's
                return (stated - now).total_seconds()
    return None


def _finite(value: object) -> float:
    number = plain_number(str(value))
    if not 0 <= number < 10**12:
        raise ValueError(value)
    return number


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End a program and what it has started."""
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(OSError, subprocess.TimeoutExpired):
        child.wait(1.0)
    if child.stdout is not None:
        child.stdout.close()
