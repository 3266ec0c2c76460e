"""Calls a team's Python: one JSON request a line on stdin, one JSON reply a line on the descriptor given.

It runs as a script of its own, in a child process, and imports nothing of Fairlane. What the code prints
goes to stdout, which is the parent's stderr. Its arguments are its memory in bytes and the descriptor.
"""

import asyncio
import contextlib
import importlib.util
import inspect
import io
import json
import os
import resource
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_modules: dict[str, ModuleType] = {}


def _limit(memory: int) -> None:
    for limit, value in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(limit)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (least, hard))


def _imported(file: str) -> ModuleType:
    if file not in _modules:
        folder, name = os.path.split(file)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location(name.rpartition(".")[0], file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _modules[file] = module
    return _modules[file]


def _function(request: dict[str, Any]) -> Any:
    if "code" in request:
        names: dict[str, Any] = {"json": json}
        exec(compile(request["code"], "<assertion>", "exec"), names)  # noqa: S102  the user's own code
        return names[request["function"]]
    found: Any = _imported(request["file"])
    for part in request["function"].split("."):
        if not hasattr(found, part):
            raise AttributeError(f"{Path(request['file']).name} has no function {request['function']}")
        found = getattr(found, part)
    return found


def _script(request: dict[str, Any]) -> str:
    """What a script prints, run with these arguments."""
    printed, before = io.StringIO(), sys.argv
    sys.argv = [request["script"], *request["args"]]
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.argv = before
    return printed.getvalue().rstrip("\n")


def _answered(request: dict[str, Any]) -> dict[str, Any]:
    try:
        if "script" in request:
            return {"value": _script(request)}
        if "hook" in request:
            _modules.pop(request["file"], None)
        function = _function(request)
        given = json.dumps(request["args"]) if "hook" in request else ""
        value = function(*request["args"])
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        if "hook" in request:
            value = {"returned": value, "args": json.loads(given)}
    except MemoryError:
        return {"error": "it needs more memory than a program may have"}
    except BaseException as error:  # noqa: BLE001  a program may raise anything, SystemExit too
        return {"error": f"{type(error).__name__}: {error}"}
    return {"value": value}


async def _awaited(value: Any) -> Any:
    return await value


def _line(reply: dict[str, Any]) -> str:
    try:
        return json.dumps(reply, default=vars)
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps({"error": f"the value is no JSON: {error}"})


def main() -> None:
    """Answer requests until stdin ends."""
    _limit(int(sys.argv[1]))
    with os.fdopen(int(sys.argv[2]), "w", encoding="utf-8") as replies:
        requests = os.fdopen(os.dup(0), encoding="utf-8")  # a program may close its own, as exit() does
        for line in requests:
            print(_line(_answered(json.loads(line))), file=replies, flush=True)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
