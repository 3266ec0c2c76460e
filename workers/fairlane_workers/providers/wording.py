"""Foreign text made fit to keep: encodable, short, and free of credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable

MESSAGE_LIMIT = 500

_WORD = re.compile(r"\S+")


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced, so that it encodes as UTF-8.

    JSON may carry half a pair (``"\\ud83d"``), which Python keeps and then cannot write anywhere.
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
    """The text without any of the secrets, and without what a provider left of a key it masked itself."""
    if "***" in text:
        text = _WORD.sub(lambda word: "***" if "***" in word[0] else word[0], text)
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text
