"""Finds settings of different sections that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlane.config.problems import Layer, Problem, did_you_mean, dotted, origin_of
from fairlane.config.settings import Settings
from fairlane.model.lane import FUNCTIONS, endpoint_id


def contradictions(settings: Settings, layers: Sequence[Layer]) -> Iterator[Problem]:
    """Names that are taken, lanes that no connection has, intervals that would declare every worker dead."""
    if FUNCTIONS in settings.connections:
        remedy = "Name it otherwise: python:<function> are functions on the workers."
        yield Problem(dotted(["connections", FUNCTIONS]), FUNCTIONS, "this name is reserved", remedy)
    for lane in settings.lanes:
        yield from _lane_problems(settings, ["lanes", lane], lane, layers)
    for lane in settings.worker.lanes:
        yield from _lane_problems(settings, ["worker", "lanes"], lane, layers)
    yield from _beat_problems(settings)


def _lane_problems(
    settings: Settings, path: list[str], lane: str, layers: Sequence[Layer]
) -> Iterator[Problem]:
    field, origin = dotted(path), origin_of(path, layers)
    name, separator, model = lane.partition(":")
    if name == FUNCTIONS and model.strip():
        return
    connection = settings.connections.get(name)
    if lane in _endpoints(settings):
        return
    if connection is None:
        known = ", ".join(settings.connections) or "none"
        near = did_you_mean(name, settings.connections) or f"configured connections: {known}."
        remedy = f"A lane begins with its connection's name: {near}"
        yield Problem(field, lane, f"there is no connection {name!r}, in {origin}", remedy)
    elif connection.scope == "connection" and separator:
        remedy = f'Write "{name}" alone, or set connections.{name}.lane_scope = "model".'
        yield Problem(field, lane, f"all models of {name!r} share one lane, in {origin}", remedy)
    elif connection.scope == "model" and not model.strip():
        remedy = f'Write "{name}:<model>", or set connections.{name}.lane_scope = "connection".'
        yield Problem(field, lane, f"each model of {name!r} has a lane of its own, in {origin}", remedy)
    elif connection.scope == "endpoint":
        remedy = f'Write "{endpoint_id(connection.base_url)}".'
        yield Problem(field, lane, f"the lane of {name!r} is its server's, in {origin}", remedy)


def _endpoints(settings: Settings) -> set[str]:
    """Lanes of servers, which belong to no single connection."""
    known = settings.connections.values()
    return {endpoint_id(connection.base_url) for connection in known if connection.scope == "endpoint"}


def _beat_problems(settings: Settings) -> Iterator[Problem]:
    """Intervals must let a worker miss one heartbeat."""
    least = 2 * settings.worker.beat_seconds
    limits = {
        "scheduler.worker_timeout_seconds": settings.scheduler.worker_timeout_seconds,
        "scheduler.lease_seconds": settings.scheduler.lease_seconds,
    }
    for field, limit in limits.items():
        if limit < least:
            remedy = f"Raise it to {least:g} or more, or lower worker.beat_seconds."
            yield Problem(field, limit, "is less than two beats of a worker", remedy)
