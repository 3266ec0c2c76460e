"""A Redis that answers and refuses is described by its state, whatever the command held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from fairlane.core.errors import StoreRefuses, StoreUnavailable
from fairlane.store.connection.connect import unavailable
from fairlane.store.connection.server_states import is_full, refusing_state
from fairlane.store.connection.tls_errors import in_words

URL = "redis://127.0.0.1:6379/0"

SAID = [
    (OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "is full"),
    (ReadOnlyError("You can't write against a read only replica."), "is a replica"),
    (ResponseError("UNBLOCKED force unblock from blocking operation"), "is a replica"),
    (BusyLoadingError("Redis is loading the dataset in memory"), "is loading"),
    (ResponseError("MISCONF Errors writing to the AOF file: No space left on device"), "to its disk"),
    (ResponseError("NOREPLICAS Not enough good replicas to write."), "replicas"),
    (ResponseError("BUSY Redis is busy running a script."), "one long script"),
    (ResponseError("Error running script (call to f_12): @user_script:3: -OOM command not allowed"), "full"),
    (ResponseError("Command # 1 (RPUSH k v) of pipeline caused error: MISCONF Errors writing"), "disk"),
]


CROWDED = (ConnectionError("max number of clients reached"), "takes no more connections")


@pytest.mark.parametrize(("error", "words"), [*SAID, CROWDED])
def test_each_state_has_words_of_its_own_and_no_advice_to_start_a_server(
    error: RedisError, words: str
) -> None:
    shown = unavailable(URL, error)
    assert isinstance(shown, StoreRefuses)
    assert words in str(shown)
    assert URL in str(shown)
    assert "Start one" not in str(shown)
    assert "cannot reach" not in str(shown)
    assert words in in_words(error)


def test_a_server_that_does_not_answer_is_reported_as_before() -> None:
    shown = unavailable(URL, ConnectionError("Connection refused"))
    assert type(shown) is StoreUnavailable
    assert "cannot reach Redis" in str(shown)


@given(value=st.text() | st.sampled_from(["-OOM x", "MISCONF y", "BUSY ", ": -READONLY now"]))
def test_what_a_command_holds_names_no_state(value: str) -> None:
    text = f"Command # 1 (RPUSH k {value}) of pipeline caused error: ERR value is not an integer"
    assert refusing_state(ResponseError(text)) is None


@given(code=st.sampled_from(["BUSYKEY", "BUSYGROUP", "ERR", "OOMPH", "NOSCRIPT"]), rest=st.text())
def test_an_unknown_error_code_is_no_server_state(code: str, rest: str) -> None:
    rest = rest.replace("-", "_")
    assert refusing_state(ResponseError(f"{code} {rest}")) is None


def test_only_a_full_server_is_full() -> None:
    assert [is_full(error) for error, _ in SAID] == [True, *[False] * 6, True, False]
