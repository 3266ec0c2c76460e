"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    """A version of its own where only the code is there, as in a bundle or on PYTHONPATH."""
    try:
        return version("fairlane")
    except PackageNotFoundError:
        return "0+unknown"


__version__ = _installed()
