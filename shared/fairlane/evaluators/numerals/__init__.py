"""How numbers are written: signs that mean the same, the grammar of a number, and marked answers."""

from __future__ import annotations
