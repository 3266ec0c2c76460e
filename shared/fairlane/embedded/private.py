"""Makes folders that only their owner can enter: prompts, answers and logs lie in them."""

from pathlib import Path

PRIVATE = 0o700
PRIVATE_UMASK = 0o077


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, with `PRIVATE` as their mode.

    One that exists keeps its mode: it may be somebody else's, such as ``/tmp``.
    """
    if folder.exists():
        return
    make_private(folder.parent)
    folder.mkdir(mode=PRIVATE, exist_ok=True)
