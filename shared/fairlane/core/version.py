"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    """The version; "0+unknown" for code without its distribution, as in a bundle or on PYTHONPATH."""
    try:
        return version("fairlane")
    except PackageNotFoundError:
        return "0+unknown"


__version__ = _installed()
