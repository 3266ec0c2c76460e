"""Pieces of work that go past each limit; a child imports them from here."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from fairlane.pipeline.rendering import Rendering


@dataclass(frozen=True, slots=True)
class Does:
    """Does what its name says, and answers with its mark."""

    what: ClassVar[str] = "prompts"

    act: str
    mark: str = ""

    def work(self, rendering: Rendering | None) -> bytes:
        match self.act:
            case "spins":
                ("a" * 2_000_000).rfind("ab" + "a" * 1_000_000)  # one call of a C function, for hours
            case "hangs":
                time.sleep(3600)  # noqa: TID251  a child that does nothing, and takes no CPU
            case "grows":
                b"x" * (1 << 34)
            case "dies":
                os._exit(3)
            case "raises":
                raise ValueError("no such thing")
            case "floods":
                return b"x" * (1 << 21)
            case "lies":
                return b"\xff"
            case "environment":
                return repr(sorted(os.environ)).encode()  # noqa: TID251  of the child
        return self.mark.encode()

    def read(self, reply: bytes) -> Any:
        return reply.decode()
