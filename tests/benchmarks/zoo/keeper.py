"""Plays many worlds, each with every player, in one process or several. Each process has its own Redis."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.util import Finalize

from fairlane.lab.rehearsal.recording import backend, quiet
from fairlane.store.connection.connect import RedisClient
from tests.benchmarks.control.player import leave_interrupts_to_the_parent
from tests.benchmarks.zoo.generator import FULL, Size, generate
from tests.benchmarks.zoo.measure import Figures, measure
from tests.benchmarks.zoo.peer_client import play_peer
from tests.benchmarks.zoo.peers import PEERS
from tests.benchmarks.zoo.playing import Course, play_fairlane
from tests.benchmarks.zoo.world import World

FAIRLANE = "fairlane"
PLAYERS = (FAIRLANE, *PEERS)

_server = ExitStack()
_redis: list[RedisClient] = []


def course_of(seed: int, player: str = FAIRLANE, size: Size = FULL) -> Course:
    """The course of one player in the world of a seed. Raises `LocalStackError` where no Redis can be had."""
    world = generate(seed, size)
    return play_fairlane(world, _own_redis()) if player == FAIRLANE else play_peer(world, player)


def course_at(world: World) -> Course:
    """The course of Fairlane in a world. Raises `LocalStackError` where no Redis can be had."""
    return play_fairlane(world, _own_redis(), to_the_end=False)


def figures_of(seed: int, players: Sequence[str] = PLAYERS, size: Size = FULL) -> list[Figures]:
    """The figures of these players in the world of a seed."""
    return [measure(course_of(seed, player, size), player) for player in players]


def play_seeds(
    seeds: Sequence[int], processes: int, players: Sequence[str] = PLAYERS, size: Size = FULL
) -> Iterator[list[Figures]]:
    """Play all seeds and yield each one's figures as it finishes. Closing the iterator ends the processes."""
    play = partial(figures_of, players=tuple(players), size=size)
    if processes == 1:
        yield from map(play, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, leave_interrupts_to_the_parent) as pool:
        yield from pool.imap_unordered(play, seeds)
        pool.close()
        pool.join()  # so that each process stops its server in peace


def close() -> None:
    """Stop this process' Redis server, if it has started one."""
    _redis.clear()
    _server.close()


def _own_redis() -> RedisClient:
    """This process' Redis server. Its worlds use it one after another."""
    if not _redis:
        _server.enter_context(quiet())
        _redis.append(_server.enter_context(backend()))
        Finalize(None, close, exitpriority=1)  # a pool's process runs no ``atexit`` functions
    return _redis[0]
