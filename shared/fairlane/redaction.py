"""Keeps credentials out of log lines and error messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"
LEAST_SPELLING = 8
FINGERPRINT_DIGITS = 12

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
_QUERY_SECRET = re.compile(r"([?&](?:(?:sentinel_)?password|api_key|key|token)=)[^&\s'\"]+")
_BEARER = re.compile(r"(\bBearer\s+)[^\s'\",]+", re.IGNORECASE)


def fingerprint(secret: str, salt: bytes) -> str:
    """Tells credentials of one deployment apart, and says nothing about them: 12 hexadecimal digits.

    HMAC-SHA256, so that whoever does not have the deployment's salt cannot even try guesses.
    """
    return hmac.new(salt, secret.encode(), hashlib.sha256).hexdigest()[:FINGERPRINT_DIGITS]


def spellings(secret: str) -> tuple[str, ...]:
    """A secret as it may be quoted: as it is, escaped for JSON or for a URL, in base64 or hexadecimal.

    Base64 depends on what stands before and after; what does not is given. The longest come first.
    """
    raw = secret.encode()
    found = {json.dumps(secret)[1:-1], quote(secret), quote(secret, safe=""), quote_plus(secret), raw.hex()}
    for before in range(3):
        whole = base64.b64encode(b"0" * before + raw).decode().rstrip("=")
        first = -(-before * 8 // 6)
        core = whole[first : (before + len(raw)) * 8 // 6]
        found |= {core, core.replace("+", "-").replace("/", "_")}
    # What is as short as a word may be one.
    longer = {each for each in found if len(each) >= LEAST_SPELLING}
    return tuple(sorted(longer | {secret}, key=len, reverse=True))


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
