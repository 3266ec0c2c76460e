"""Keeps credentials out of log lines and error messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"
RUN = 12
"""Consecutive characters of a credential that are masked. Fewer reveal little, and may be part of a word."""

HINT = 6
STRIDE = RUN - HINT + 1
"""`Secrets` compares ``HINT`` characters at every ``STRIDE``-th place: a seventh of all places is enough."""

LEAST_VARIED = 5
"""Least different characters in a run: a run of dashes or zeros belongs to no credential."""

LONGEST = 4096
"""Characters: a longer credential is masked as a whole only."""

SEPARATORS = " \n\t-_.,:;|/\u200b"
"""Signs that a provider may put between the characters of a credential."""

LEAST_SPELLING = 8
FINGERPRINT_DIGITS = 12

SECRET_NAMES = (
    *("api_key", "apikey", "authorization", "cookie", "password"),
    *("proxy_authorization", "secret", "set_cookie", "token", "x_api_key"),
)

SECRET_ENDS = (
    *("_password", "_api_key", "_secret", "_access_token", "_auth_token", "_refresh_token"),
    *("_security_token", "_session_token", "_subscription_key"),
)

_WORD = re.compile(r"[^\s'\"]+")
_USER = re.compile(r"://([^:/]*)(:|\Z)")
_MISLEADING = re.compile(r"[\s#/?'\"]")
HIDDEN = "(hidden)"
_PARAMETER = re.compile(r"([?&]([\w.~-]++)=)[^&\s'\"]+")
_AUTHORIZATION = r"Authorization['\"]?\s*[:=]\s*['\"]?(?:Basic|Token)"
_BEARER = re.compile(rf"(\b(?:Bearer|{_AUTHORIZATION})\s+)[^\s'\",]+", re.IGNORECASE)


def fingerprint(secret: str, salt: bytes) -> str:
    """A fingerprint that distinguishes the credentials of a deployment: 12 hexadecimal digits.

    HMAC-SHA256: without the deployment's salt nobody can test a guess against it.
    """
    return hmac.new(salt, secret.encode(), hashlib.sha256).hexdigest()[:FINGERPRINT_DIGITS]


def spellings(secret: str) -> tuple[str, ...]:
    """Spellings of a secret in text: plain, escaped for JSON or a URL, base64, hexadecimal; longest first.

    Base64 of a secret inside a longer text depends on its neighbours; only the constant part is included.
    """
    raw = secret.encode()
    found = {json.dumps(secret)[1:-1], quote(secret), quote(secret, safe=""), quote_plus(secret), raw.hex()}
    for before in range(3):
        whole = base64.b64encode(b"0" * before + raw).decode().rstrip("=")
        first = -(-before * 8 // 6)
        core = whole[first : (before + len(raw)) * 8 // 6]
        found |= {core, core.replace("+", "-").replace("/", "_")}
    # A shorter spelling could be an ordinary word.
    longer = {each for each in found if len(each) >= LEAST_SPELLING}
    return tuple(sorted(longer | {secret}, key=len, reverse=True))


def disguises(secret: str) -> tuple[str, ...]:
    """`spellings` and those in which a provider may hide what it echoes, in lower case.

    Base32 and HTML, reversed, and each character escaped. Like base64, base32 inside a longer text depends on
    its neighbours; only the constant part is included.
    """
    raw = secret.encode(errors="replace")
    found = {
        secret,
        *spellings(secret),
        html.escape(secret),
        secret[::-1],
        *(
            "".join(form % byte for byte in raw)
            for form in ("%%%02x", "\\x%02x", "\\u%04x", "&#%d;", "&#x%x;")
        ),
    }
    for before in range(5):
        whole = base64.b32encode(b"0" * before + raw).decode().rstrip("=")
        found.add(whole[-(-before * 8 // 5) : (before + len(raw)) * 8 // 5])
    return tuple({each.lower() for each in found if len(each) >= RUN})


def separated(secret: str) -> Iterator[tuple[str, int]]:
    """``secret`` with its characters, or pairs of its hexadecimal digits, apart by each of `SEPARATORS`.

    In lower case, each with the length of a step, separator included: no run begins with a separator.
    """
    pairs = secret.encode(errors="replace").hex(" ").split(" ")
    for separator in SEPARATORS:
        yield separator.join(secret).lower(), 2
        yield separator.join(pairs), 3


class Secrets:
    """The credentials of one connection, to be masked in whatever its provider sends.

    As an iterable: the spellings to be masked whole. `masked` finds any `RUN` characters of any disguise,
    in upper or lower case.
    """

    def __init__(self, held: Iterable[str] = (), also: Iterable[str] = ()) -> None:
        """``also``: texts that may hold a credential, such as a URL's query, masked only as a whole."""
        keys = tuple(held)
        self._spelled = tuple(each for secret in (*keys, *also) for each in spellings(secret))
        self._runs, self._hints = set[str](), set[str]()
        self._sorted: list[str] | None = None
        short = [secret for secret in keys if len(secret) <= LONGEST]
        texts = {(disguise, 1) for secret in short for disguise in disguises(secret)}
        texts.update(each for secret in short for each in separated(secret))
        for text, step in texts:
            runs = {text[at : at + RUN] for at in range(0, len(text) - RUN + 1, step)}
            self._runs |= {run for run in runs if len(set(run)) >= LEAST_VARIED}
        for run in self._runs:
            self._hints |= {run[at : at + HINT] for at in range(RUN - HINT + 1)}

    @classmethod
    def joined(cls, parts: Iterable[Secrets]) -> Secrets:
        """One object that masks all that ``parts`` mask, at a hundredth of the cost of a new one."""
        made = cls()
        for part in parts:
            made._spelled += part._spelled
            made._runs |= part._runs
            made._hints |= part._hints
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._spelled)

    def masked(self, text: str) -> str:
        """``text`` without any `RUN` characters in a row of a credential, however it is spelled."""
        starts = self.starts(text)
        if not starts:
            return text
        parts, done = list[str](), 0
        for first, last in stretches(starts):
            parts += [text[done:first].rstrip("\\"), MASK]
            done = last + cut_escape(text[max(done, first) : last])
        return "".join([*parts, text[done:]])

    def starts(self, text: str) -> list[int]:
        """Where `RUN` characters of a credential begin in ``text``, in order."""
        if not self._runs or len(text) < RUN:
            return []
        lower, hints, runs = _lowered(text), self._hints, self._runs
        # Every run holds a whole hint that begins at a multiple of the stride.
        near = [at for at in range(0, len(lower) - HINT + 1, STRIDE) if lower[at : at + HINT] in hints]
        return sorted(
            {
                at
                for hit in near
                for at in range(max(0, hit - STRIDE + 1), hit + 1)
                if lower[at : at + RUN] in runs
            }
        )

    def opening(self, text: str) -> int:
        """Where the end of ``text`` may begin `RUN` characters of a credential; its length if it does not."""
        if not self._runs:
            return len(text)
        if self._sorted is None:
            self._sorted = sorted(self._runs)
        end = _lowered(text[1 - RUN :])
        for at in range(len(end)):
            place = bisect_left(self._sorted, end[at:])
            if place < len(self._sorted) and self._sorted[place].startswith(end[at:]):
                return len(text) - len(end) + at
        return len(text)


def _lowered(text: str) -> str:
    """``text`` in lower case, character by character."""
    lower = text.lower()
    if len(lower) != len(text):  # such as İ, which becomes two characters
        lower = "".join(sign.lower() if sign.isascii() else sign for sign in text)
    return lower


def cut_escape(covered: str) -> int:
    """1 if a masked stretch ends within an escape sequence of JSON, whose other half goes too; else 0."""
    return (len(covered) - len(covered.rstrip("\\"))) % 2


def stretches(starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Stretches of text that runs cover, from runs' first characters in order; those that touch are one."""
    first, last = starts[0], starts[0] + RUN
    for start in starts:
        if start > last:
            yield first, last
            first = start
        last = start + RUN
    yield first, last


def mask_text(text: str) -> str:
    """``text`` with credentials in URLs and bearer tokens masked. Linear in its length.

    In a URL it masks a password, a user without one (some services take a key there), and each parameter
    that `is_key_name` knows.
    """
    if "://" in text:
        text = _PARAMETER.sub(_without_key, _WORD.sub(_without_user, text))
        text = _WORD.sub(_without_user, text)  # a masked parameter may have held what made a path of a user
    lower = text.lower()
    return _BEARER.sub(rf"\1{MASK}", text) if "bearer" in lower or "authorization" in lower else text


def _without_user(word: re.Match[str]) -> str:
    """A word up to its last "@": a password may itself hold "@" or "/"; masking too much does no harm."""
    before, at, after = word[0].rpartition("@")
    user = _USER.search(before) if at else None
    if user is None:
        return word[0]
    if user[2]:
        return f"{before[: user.end()]}{MASK}@{after}"
    return f"{before[: user.start(1)]}{MASK}@{after}" if user[1] else word[0]


def _without_key(parameter: re.Match[str]) -> str:
    return f"{parameter[1]}{MASK}" if is_key_name(parameter[2]) else parameter[0]


def shown_url(url: str) -> str:
    """A URL for a message, without its password; `HIDDEN` if the password's place is ambiguous."""
    _, begun, rest = url.partition("://")
    user, at, _ = rest.rpartition("@")
    malformed = "@" in url and not (begun and at)
    return HIDDEN if malformed or "#" in url or _MISLEADING.search(user) else mask_text(url)


def mask_value(name: str, value: Any) -> Any:
    """``value`` as a log may show it under ``name``: secrets are masked, also inside texts.

    Another kind of value, such as an exception, becomes its masked ``repr`` if that contains a secret.
    """
    if value is None:
        return None
    if is_secret_name(name):
        return MASK
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {_masked_key(key): mask_value(str(key), inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [mask_value(name, inner) for inner in value]
    shown = repr(value)
    masked = mask_text(shown)
    return value if masked == shown else masked


def _masked_key(key: object) -> object:
    return mask_text(key) if isinstance(key, str) else key


def is_key_name(name: str) -> bool:
    """Whether a URL's parameter of this name is a credential."""
    return name.lower() in ("key", "code", "sig", "signature") or is_secret_name(name)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a field of this name (``Authorization``, ``x-api-key``, ``redis_password``) is a credential."""
    plain = name.lower().replace("-", "_")
    return plain in SECRET_NAMES or f"_{plain}".endswith(SECRET_ENDS)
