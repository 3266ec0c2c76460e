"""The scheduler knows whose turn it is, whenever it looks at a row and whenever it learns of an end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.store.read.turn_reading import TurnStates
from fairlane_scheduler.feed import turns as room
from fairlane_scheduler.feed.turns import Turns


def bitmap(bits: Sequence[int]) -> bytes:
    found = bytearray(max(bits, default=-1) // 8 + 1)
    for bit in bits:
        found[bit >> 3] |= 0x80 >> (bit & 7)
    return bytes(found)


@pytest.mark.parametrize("steps", [1, 3])
@given(of=st.lists(st.integers(0, 4), max_size=40), data=st.data())
def test_the_next_of_each_conversation_is_due_and_no_other(
    steps: int, of: list[int], data: st.DataObject
) -> None:
    """A leader before it has fed the first ``done`` of each conversation, and perhaps one more."""
    queues = {each: [item for item, other in enumerate(of) if other == each] for each in set(of)}
    ended = {each: data.draw(st.integers(0, len(items))) for each, items in queues.items()}
    fed = {
        each: min(len(items), ended[each] + data.draw(st.integers(0, 1))) for each, items in queues.items()
    }
    over = [item for each, items in queues.items() for item in items[: ended[each]]]
    states = TurnStates(
        bitmap([item for each, items in queues.items() for item in items[: fed[each]]]),
        bitmap([item * steps + step for item in over for step in range(steps)]),
        len(over),
        steps,
    )
    found = Turns(states)
    for _ in range(300):
        if found.scanned == len(of) and all(ended[each] == len(items) for each, items in queues.items()):
            break
        act = data.draw(st.sampled_from(["look", "look", "end", "feed"]))
        under_way = [each for each in sorted(queues) if fed[each] > ended[each]]
        if act == "look":
            upto = min(len(of), found.scanned + data.draw(st.integers(1, 5)))
            found.scan(upto, lambda item: str(of[item]), lambda: False)
        elif act == "end" and under_way:
            each = data.draw(st.sampled_from(under_way))
            found.end([queues[each][ended[each]]])
            ended[each] += 1
        elif act == "feed" and (due := found.due()):
            turn = data.draw(st.sampled_from(due))
            found.feed([turn])
            fed[of[turn.item]] += 1
        wanted = {
            items[fed[each]]
            for each, items in queues.items()
            if fed[each] == ended[each] < len(items) and items[fed[each]] < found.scanned
        }
        assert {turn.item for turn in found.due()} == wanted
        for turn in found.due():
            items = queues[of[turn.item]]
            assert turn.before in (-1, items[items.index(turn.item) - 1])


def test_what_has_ended_is_not_kept_and_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_HELD", 5)
    turns = Turns(TurnStates(b"", b"", 0, 1))
    of = [0] * 20 + [1]
    for _ in range(3):
        turns.scan(len(of), lambda item: str(of[item]), lambda: False)
    assert (turns.scanned, [turn.item for turn in turns.due()]) == (6, [0])
    for item in range(20):
        turns.feed(turn for turn in turns.due() if turn.item == item)
        turns.end([item])
        turns.scan(len(of), lambda item: str(of[item]), lambda: False)
    assert [turn.item for turn in turns.due()] == [20]
    turns.feed(turns.due())
    turns.end([20])
    kept = (turns._due, turns._next, turns._last, turns._conversations, turns._ended_ahead)
    assert not any(kept)
