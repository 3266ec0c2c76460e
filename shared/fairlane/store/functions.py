"""Keeps Fairlane's functions of this version in the server, and deletes those of other versions."""

from contextlib import suppress

from redis.exceptions import ResponseError

from fairlane.store.connection.server_states import refusing_state
from fairlane.store.redis_client import RedisClient
from fairlane.store.verb_text import FUNCTION_PREFIX, Function
from fairlane.store.verbs import all_scripts


def keep_functions(redis: RedisClient) -> None:
    """Load each function that the server misses, and delete those of other versions.

    Running processes of another version load theirs again. If a server has no functions, or its rules forbid
    them, nothing is loaded: every call is a script there (`fairlane.store.script.Functions`).
    Raises the error of a server that takes no commands now.
    """
    ours = {function.name: function for function in all_functions()}
    try:
        found = _names(redis)
    except ResponseError as error:
        if refusing_state(error) is not None:
            raise
        return
    for name in found - ours.keys():
        with suppress(ResponseError):  # another process was first
            redis.function_delete(name)
    for name in ours.keys() - found:
        try:
            redis.function_load(ours[name].library)
        except ResponseError as error:
            if refusing_state(error) is not None:
                raise


def all_functions() -> tuple[Function, ...]:
    """Every function that ships with the package, one for each form of a verb."""
    forms = (form for script in all_scripts() for form in (script, script.many))
    return tuple(form.function for form in forms if form is not None and form.function is not None)


def _names(redis: RedisClient) -> set[str]:
    """Fairlane's libraries in the server, by the prefix of their names."""
    listed = redis.function_list(f"{FUNCTION_PREFIX}*")
    return {each[each.index(b"library_name") + 1].decode() for each in listed}
