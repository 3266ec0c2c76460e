"""Makes folders that only their owner can enter, for prompts, answers and logs."""

from pathlib import Path

PRIVATE = 0o700
PRIVATE_UMASK = 0o077


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, with `PRIVATE` as their mode.

    An existing folder keeps its mode: it may be shared, such as ``/tmp``.
    """
    if folder.exists():
        return
    make_private(folder.parent)
    folder.mkdir(mode=PRIVATE, exist_ok=True)
