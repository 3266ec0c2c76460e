"""The stages that most unit tests stand on. A file that needs another one defines its own of that name.

Each is imported when used: a test of a pure function waits for none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis import Redis

from tests.support.authorities import one_authority

if TYPE_CHECKING:
    from tests.support.command_line import CommandLine
    from tests.support.scheduler_parts import Parts
    from tests.support.stage import Stage


__all__ = ["cli", "one_authority", "parts", "stage"]


@pytest.fixture
def cli(real_redis: Redis) -> CommandLine:
    """The command line, on a real server."""
    from tests.support.command_line import CommandLine

    return CommandLine(real_redis)


@pytest.fixture
def stage(fake_redis: Redis) -> Stage:
    """A client whose runs a test plays itself."""
    from tests.support.stage import Stage

    return Stage(fake_redis)


@pytest.fixture
def parts(fake_redis: Redis) -> Parts:
    """A scheduler's parts, ticked by a test."""
    from tests.support.scheduler_parts import Parts

    return Parts(fake_redis)
