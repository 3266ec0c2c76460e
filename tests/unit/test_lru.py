from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.lru import Lru


def test_the_least_recently_used_value_goes_first() -> None:
    cache: Lru[str, int] = Lru(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1

    cache.put("c", 3)

    assert "b" not in cache
    assert (cache.get("a"), cache.get("c")) == (1, 3)


def test_a_value_is_made_once() -> None:
    cache: Lru[str, list[int]] = Lru(2)

    first = cache.get_or_make("a", list)

    assert cache.get_or_make("a", list) is first


def test_a_value_that_cannot_be_made_is_not_kept() -> None:
    cache: Lru[str, int] = Lru(2)

    with pytest.raises(ZeroDivisionError):
        cache.get_or_make("a", lambda: 1 // 0)

    assert len(cache) == 0
    assert cache.get("a") is None


def test_none_is_a_value_like_others() -> None:
    cache: Lru[str, int | None] = Lru(2)
    cache.put("a", None)

    assert cache.get_or_make("a", lambda: 1) is None


def test_keys_are_dropped_one_by_one_or_by_a_condition() -> None:
    cache: Lru[int, int] = Lru(8)
    for key in range(6):
        cache.put(key, key)

    cache.drop(0)
    cache.drop(99)
    cache.drop_where(lambda key: key % 2 == 1)

    assert [key for key in range(6) if key in cache] == [2, 4]


def test_a_cache_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Lru(0)


@given(most=st.integers(1, 5), keys=st.lists(st.integers(0, 8)))
def test_it_keeps_the_last_keys_used_and_no_more(most: int, keys: list[int]) -> None:
    cache: Lru[int, int] = Lru(most)

    def same(key: int) -> Callable[[], int]:
        return lambda: key

    for key in keys:
        assert cache.get_or_make(key, same(key)) == key

    recent = list(dict.fromkeys(reversed(keys)))[:most]
    assert len(cache) == len(recent)
    assert all(key in cache for key in recent)
