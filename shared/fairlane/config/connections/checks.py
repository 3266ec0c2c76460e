"""Checks of a connection that no type can express: its provider, its address, keys in plain sight."""

import difflib
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from fairlane.config.connections.presets import OTHER_NAMES, PROTOCOLS, Preset, all_presets
from fairlane.core.paths import at_home
from fairlane.core.redaction import MASK, is_secret_name
from fairlane.core.section import Mistake, Section, validation_error

_SECRET_HEADERS = frozenset({"x-auth-token", "x-amz-security-token", "ocp-apim-subscription-key"})
_SECRET_SCHEMES = ("bearer ", "basic ", "api-key ", "token ")
# The HTTP client sets these itself (RFC 9110 and 9112).
_FRAMING_HEADERS = frozenset(
    {"connection", "content-encoding", "content-length", "host", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
_PLACES = {("bedrock", "region"): "us-east-1", ("vertex", "region"): "us-central1"}
_LEAST_SIMILARITY = 0.7

PROTOCOL_GROUP = "fairlane.protocols"
"""The entry points that name protocols. Workers load them: `fairlane_workers.providers.registry`."""


def example_of(provider: str, place: str) -> str:
    """An example value for a field of a connection's address."""
    return _PLACES.get((provider, place), f"my-{place}")


def unknown_provider(name: str) -> Mistake:
    """The error for an unknown provider, with the one that was probably meant."""
    folded = name.lower()
    also = [OTHER_NAMES[folded]] if folded in OTHER_NAMES else []
    near = [*also, *difflib.get_close_matches(folded, all_presets(), n=1, cutoff=_LEAST_SIMILARITY)]
    meant = f"Did you mean {near[0]!r}? " if near else ""
    listed = "`fairlane connections --providers` lists them"
    remedy = f"{meant}{listed}; for any other, give protocol and base_url."
    return Mistake(("provider",), "is no known provider", remedy, name)


def _is_provided(name: str) -> str:
    """Return a protocol of Fairlane or of an installed package. The error for another names the nearest.

    It reads entry points only for a name that is not Fairlane's own, and imports nothing.
    """
    if name in PROTOCOLS:
        return name
    added = {point.name for point in entry_points(group=PROTOCOL_GROUP)}
    if name in added:
        return name
    known = [*PROTOCOLS, *sorted(added.difference(PROTOCOLS))]
    near = difflib.get_close_matches(name.lower(), known, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    remedy = f"{meant}Known here: {', '.join(known)}; another comes with a package that adds it."
    raise validation_error(Section, Mistake((), "is no known protocol", remedy, name))


ProtocolName = Annotated[str, AfterValidator(_is_provided)]


def missing_address_fields(name: str, preset: Preset, given: Mapping[str, Any]) -> list[Mistake]:
    """The fields that a preset's address needs and the configuration lacks."""
    if preset.base_url is None:
        problem = f"is missing: {preset.title} has no address that all share"
        return [Mistake(("base_url",), problem, f'Write yours, like base_url = "{preset.example}".')]
    problem = f"is missing: {preset.title} needs it"
    return [
        Mistake((part,), problem, f'Write {part} = "{example_of(name, part)}", or a base_url.')
        for part in preset.address_fields
        if given.get(part) in (None, "")
    ]


def _hold_no_key(headers: dict[str, str]) -> dict[str, str]:
    """Return headers. Raises for one that carries a key, without its value, or that the HTTP client sets."""
    found = []
    for name, value in headers.items():
        folded = name.lower()
        if folded in _FRAMING_HEADERS:
            found.append(Mistake((name,), "is set by the HTTP client", "Leave it out.", value))
        elif is_secret_name(name) or folded in _SECRET_HEADERS or value.lower().startswith(_SECRET_SCHEMES):
            remedy = "Name the key's variable in api_key_env; `auth` chooses its header."
            found.append(Mistake((name,), "would carry a key", remedy, MASK))
    if found:
        raise validation_error(Section, *found)
    return headers


HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")]
HeaderValue = Annotated[str, Field(pattern=r"^[!-~]$|^[!-~][ -~]{0,998}[!-~]$")]
Headers = Annotated[dict[HeaderName, HeaderValue], AfterValidator(_hold_no_key)]


def _holds_no_password(proxy: str) -> str:
    """Return a proxy's URL. Raises for a user or password in it, without showing them."""
    if "@" in urlsplit(proxy).netloc:
        remedy = 'Write "http://host:port", and the variable of user:password in proxy_credentials_env.'
        raise validation_error(Section, Mistake((), "holds a user or password", remedy, MASK))
    return proxy


ProxyUrl = Annotated[str, Field(pattern=r"^https?://"), AfterValidator(_holds_no_password)]


UserPath = Annotated[Path, AfterValidator(at_home)]


def _absolute(path: Path) -> Path:
    """Return an absolute path. A key that was pasted in its place is none, so no later error quotes it."""
    if not path.is_absolute():
        raise ValueError("must be an absolute path, from / or ~")
    return path


KeyFile = Annotated[UserPath, AfterValidator(_absolute)]


def _one_of_three(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """One problem for a wrong value, not one for each of the types that it could have had."""
    try:
        return read(value)
    except ValidationError:
        raise ValueError('is none of true, false and "tool"') from None


StructuredOutput = Annotated[bool | Literal["tool"], WrapValidator(_one_of_three)]
