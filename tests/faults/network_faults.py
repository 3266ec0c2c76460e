"""Faults of the network between processes and Redis."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.kinds import WORKERS
from tests.faults.schedule import Timed
from tests.faults.stage import Stage, fault

DELAY_S = 0.15


@fault("partition")
def partition(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """Nothing passes; what was held passes in the end."""
    yield from _cut(stage, stage.hit(timed), forth=True, back=True)


@fault("workers_partition")
def partition_workers(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """The same for all workers at once, while the scheduler reaches Redis: permits pile up."""
    yield from _cut(stage, WORKERS, forth=True, back=True)


@fault("partition_reset")
def partition_reset(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """Nothing passes, and what was held is lost with its connections."""
    yield from _cut(stage, stage.hit(timed), forth=True, back=True, lost=True)


@fault("replies_lost")
def replies_lost(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """Redis acts, but its replies are lost."""
    yield from _cut(stage, stage.hit(timed), back=True, lost=True)


@fault("requests_lost")
def requests_lost(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """What Redis sends arrives; requests are lost."""
    yield from _cut(stage, stage.hit(timed), forth=True, lost=True)


def _cut(
    stage: Stage, hit: tuple[str, ...], *, forth: bool = False, back: bool = False, lost: bool = False
) -> Iterator[tuple[str, ...]]:
    proxies = stage.deployment.proxies
    proxies.each(list(hit), lambda proxy: proxy.cut(forth=forth, back=back))
    yield hit
    if lost:
        proxies.each(list(hit), lambda proxy: proxy.reset())
    proxies.each(list(hit), lambda proxy: proxy.mend())


@fault("delay")
def delay(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """Each message takes longer, there and back."""
    hit, proxies = stage.hit(timed), stage.deployment.proxies
    proxies.each(list(hit), lambda proxy: setattr(proxy, "delay_s", DELAY_S))
    yield hit
    proxies.each(list(hit), lambda proxy: proxy.mend())


@fault("reset")
def reset(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """Every connection is reset at the beginning and at the end."""
    hit, proxies = stage.hit(timed), stage.deployment.proxies
    proxies.each(list(hit), lambda proxy: proxy.reset())
    yield hit
    proxies.each(list(hit), lambda proxy: proxy.reset())
