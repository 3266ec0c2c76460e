"""Free ports on the loopback address."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from itertools import islice

import pytest

from fairlane.embedded.ports import FIRST, LAST, LOOPBACK, answers, free_ports, is_free, preferred_or_free


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server


def test_a_port_that_is_listened_on_is_not_free(listener: socket.socket) -> None:
    assert not is_free(listener.getsockname()[1])


def test_free_ports_lie_below_those_of_outgoing_connections() -> None:
    assert all(FIRST <= port < LAST for port in islice(free_ports(random.Random(1)), 20))


def test_a_taken_port_is_never_given_out() -> None:
    first = next(free_ports(random.Random(7)))
    with socket.create_server((LOOPBACK, first)):
        assert next(free_ports(random.Random(7))) != first


def test_a_wish_is_granted_if_the_port_is_free() -> None:
    wish = next(free_ports())
    assert next(preferred_or_free(wish)) == wish


def test_a_wish_for_a_taken_port_gets_another(listener: socket.socket) -> None:
    taken = listener.getsockname()[1]
    assert next(preferred_or_free(taken)) != taken


def test_something_that_listens_answers_and_nothing_else_does(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert answers(LOOPBACK, port)
    listener.close()
    assert not answers(LOOPBACK, port)
