"""Amazon's own library, which comes with an extra."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from fairlane.errors import ConfigurationError


def require_botocore(field: str, value: str, *modules: str) -> None:
    """Load ``modules`` of botocore now: that takes a third of a second, which no call is to wait for.

    Raises `ConfigurationError` about ``field`` where it is not installed.
    """
    if find_spec("botocore") is None:
        remedy = "Install the extra: pip install 'fairlane[bedrock]', on every worker."
        raise ConfigurationError(field, value, "the package botocore is not installed", remedy)
    for module in modules:
        import_module(module)
