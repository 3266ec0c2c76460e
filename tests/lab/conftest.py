"""What holds for every test of the laboratory."""

from __future__ import annotations

from tests.support.quiet import quiet

__all__ = ["quiet"]
