"""Whether HTTP/2 can be spoken here."""

from __future__ import annotations

from importlib.util import find_spec

from fairlane_workers.transport.faults import UnusableSettingError


def require_h2() -> None:
    """Raises `UnusableSettingError` where the package h2 is not installed."""
    if find_spec("h2") is None:
        remedy = "Install the extra: pip install 'fairlane[http2]', on every worker; or leave http2 out."
        raise UnusableSettingError("http2", "true", "the package h2 is not installed", remedy)
