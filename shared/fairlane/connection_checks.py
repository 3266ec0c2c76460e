"""What may be wrong with a connection that no type can tell: its provider, its place, keys in sight."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fairlane.presets import ALSO_CALLED, PRESETS, Preset
from fairlane.redaction import MASK, is_secret_name
from fairlane.section import Mistake

_SECRET_HEADERS = frozenset({"x-auth-token", "x-amz-security-token", "ocp-apim-subscription-key"})
_SECRET_SCHEMES = ("bearer ", "basic ", "api-key ", "token ")
# Whoever sends a request sets these, and must (RFC 9110 and 9112).
_FRAMING_HEADERS = frozenset(
    {"connection", "content-encoding", "content-length", "host", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
_PLACES = {("bedrock", "region"): "us-east-1", ("vertex", "region"): "us-central1"}
_LEAST_ALIKE = 0.7


def example_of(provider: str, place: str) -> str:
    """What a field of a connection's address may look like."""
    return _PLACES.get((provider, place), f"my-{place}")


def unknown_provider(name: str) -> Mistake:
    """A provider that is not known by that name, and the one that was probably meant."""
    folded = name.lower()
    also = [ALSO_CALLED[folded]] if folded in ALSO_CALLED else []
    near = [*also, *difflib.get_close_matches(folded, PRESETS, n=1, cutoff=_LEAST_ALIKE)]
    meant = f"Did you mean {near[0]!r}? " if near else ""
    listed = "`fairlane connections --providers` lists them"
    remedy = f"{meant}{listed}; for any other, give protocol and base_url."
    return Mistake(("provider",), "is no provider that is known by name", remedy, name)


def missing_places(name: str, preset: Preset, given: Mapping[str, Any]) -> list[Mistake]:
    """What the address of a preset needs and the configuration does not have."""
    if preset.base_url is None:
        problem = f"is missing: {preset.title} has no address that all share"
        return [Mistake(("base_url",), problem, f'Write yours, like base_url = "{preset.example}".')]
    problem = f"is missing: {preset.title} needs it"
    return [
        Mistake((part,), problem, f'Write {part} = "{example_of(name, part)}", or a base_url.')
        for part in preset.places
        if given.get(part) in (None, "")
    ]


def keys_in_headers(headers: Mapping[str, str]) -> list[Mistake]:
    """Headers that would carry a key, whose values are not shown, and those that nobody sets by hand."""
    found = []
    for name, value in headers.items():
        folded = name.lower()
        if folded in _FRAMING_HEADERS:
            found.append(Mistake((name,), "is set by whoever sends the request", "Leave it out.", value))
        elif is_secret_name(name) or folded in _SECRET_HEADERS or value.lower().startswith(_SECRET_SCHEMES):
            remedy = "Name the key's variable in api_key_env; `auth` says how it goes."
            found.append(Mistake((name,), "would carry a key", remedy, MASK))
    return found


def password_in_proxy(proxy: str) -> list[Mistake]:
    """A proxy's URL that holds a user or a password, neither of which is shown."""
    if "@" not in urlsplit(proxy).netloc:
        return []
    remedy = 'Write "http://host:port", and the variable of user:password in proxy_credentials_env.'
    return [Mistake((), "holds a user or password", remedy, MASK)]
