"""Keeps credentials out of log lines and error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

MASK = "***"

SECRET_NAMES = frozenset(
    {
        "api_key",
        "apikey",
        "authorization",
        "cookie",
        "password",
        "proxy_authorization",
        "secret",
        "set_cookie",
        "token",
        "x_api_key",
    }
)

# Greedy up to the last "@" of a word: a password may itself hold "@" or "/"; masking too much does no harm.
_URL_PASSWORD = re.compile(r"(://[^\s:/@'\"]*):[^\s'\"]*@")
_QUERY_SECRET = re.compile(r"([?&](?:password|api_key|key|token)=)[^&\s'\"]+")
_BEARER = re.compile(r"(\bBearer\s+)[^\s'\",]+", re.IGNORECASE)


def mask_text(text: str) -> str:
    """``text`` without the passwords of URLs in it and without bearer tokens; everything else is kept."""
    if "://" in text:
        text = _QUERY_SECRET.sub(rf"\1{MASK}", _URL_PASSWORD.sub(rf"\1:{MASK}@", text))
    if "earer" in text or "EARER" in text:
        text = _BEARER.sub(rf"\1{MASK}", text)
    return text


def mask_value(name: str, value: Any) -> Any:
    """``value`` as it may be shown under ``name``: secrets are masked, texts lose the passwords in them."""
    if value is None:
        return None
    if is_secret_name(name):
        return MASK
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        return {key: mask_value(str(key), inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask_value(name, inner) for inner in value]
    return value


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a field of this name (``Authorization``, ``x-api-key``, ``redis_password``) is a credential."""
    plain = name.lower().replace("-", "_")
    return plain in SECRET_NAMES or plain.endswith(("_password", "_api_key", "_secret", "_access_token"))
