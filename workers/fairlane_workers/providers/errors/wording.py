"""Cleans a provider's text for storage: encodable, short, and without credentials."""

import re
from collections.abc import Iterable

from fairlane.core.redaction import MASK, Secrets

MESSAGE_LIMIT = 500

_WORD = re.compile(r"\S+")


def well_formed(text: str) -> str:
    r"""The text with surrogate pairs joined and lone surrogates replaced, so that it encodes as UTF-8.

    JSON may hold half a pair (``"\ud83d"``), which Python reads but cannot encode.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def bounded(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """The text without surrounding space, of at most ``limit`` characters."""
    text = well_formed(text.strip())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, and without what is left of a key that the provider masked itself."""
    if "***" in text:
        text = _WORD.sub(lambda word: "***" if "***" in word[0] else word[0], text)
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    return without_runs(text, secrets)


def without_runs(text: str, secrets: Iterable[str]) -> str:
    """An answer's text without parts of the connection's credentials; short ones may be ordinary words."""
    return secrets.masked(text) if isinstance(secrets, Secrets) else text
