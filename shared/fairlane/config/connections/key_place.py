"""Where the workers find a connection's key: in a variable, in a file, or in a command's output."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from fairlane.core.paths import FORBIDDEN, unreadable
from fairlane.core.section import Mistake, Section, validation_error

KEY_FIELDS = ("api_key_env", "api_key_file", "api_key_command")
"""The fields of a connection that say where its key is. One of them is given, or none."""


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """``field`` of the settings, and ``name``: the variable, the file's path, or the command's program."""

    field: str
    name: str
    identity: str
    """Equal for equal keys. It has none of a command's arguments."""

    @property
    def changes(self) -> bool:
        """Whether workers read it again while they run."""
        return self.field != "api_key_env"

    @property
    def kind(self) -> str:
        """What it is: "variable", "file" or "program"."""
        return {"api_key_env": "variable", "api_key_file": "file"}.get(self.field, "program")

    @property
    def title(self) -> str:
        """The place in words: ``the file /run/secrets/openai``."""
        return f"the {self.kind} {self.name}"

    @property
    def absence(self) -> str:
        """Why this process finds no key there, to follow the name."""
        if self.field == "api_key_file":
            problem = unreadable(Path(self.name))
            return FORBIDDEN if problem == FORBIDDEN else "cannot be read" if problem else "is empty"
        return "is not set" if self.field == "api_key_env" else "is not found"

    @property
    def remedy(self) -> str:
        """What gives workers the key, without a full stop."""
        if not self.changes:
            return f"Set {self.title} where workers start, and restart them"
        if self.kind == "file":
            return f"Put the key into {self.title} where workers run, and let their user read it"
        return f"Run {self.title} by hand where workers run: it must print the key and end with 0"

    def is_missing(self, environ: Mapping[str, str]) -> bool:
        """Whether this process finds no key there. No command is run for the answer."""
        match self.field:
            case "api_key_env":
                return not environ.get(self.name, "").strip()
            case "api_key_file":
                file = Path(self.name)
                with suppress(OSError):  # it may be replaced at this moment
                    return unreadable(file) is not None or not file.stat().st_size
                return True
            case _:
                return shutil.which(self.name, path=environ.get("PATH")) is None


def key_place(variable: str | None, file: Path | None, command: Sequence[str]) -> KeyPlace | None:
    """The place that a connection's fields name; ``None`` for a connection without a key."""
    if file is not None:
        return KeyPlace("api_key_file", str(file), f"file:{file}")
    if command:
        digest = hashlib.sha256(json.dumps(list(command)).encode()).hexdigest()[:12]
        return KeyPlace("api_key_command", command[0], f"command:{digest}")
    return None if variable is None else KeyPlace("api_key_env", variable, f"${variable}")


def _is_in_words(command: object) -> object:
    """Return a command. Raises for a single text, without showing it: it may hold a key."""
    if isinstance(command, str):
        remedy = (
            'Write the program and each argument as a word of its own: ["az", "account", "get-access-token"].'
        )
        raise validation_error(Section, Mistake((), "must be a list of words", remedy, "(hidden)"))
    return command


KeyCommand = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_is_in_words)]


def misplaced_keys(given: Mapping[str, Any], scheme: str, protocol: str) -> Iterator[Mistake]:
    """Mistakes: two places of a key, or a place that is never read. ``given``: values by field."""
    found = [field for field in KEY_FIELDS if given.get(field)]
    if len(found) > 1:
        yield Mistake((found[1],), f"conflicts with {found[0]}", "Give one of them.", "(hidden)")
        return
    changing = [field for field in found if field != "api_key_env"]
    for field in changing:
        if scheme in ("none", "sigv4", "google"):
            remedy = f'Leave {field} out, or set auth = "bearer" for a token.'
            if scheme == "google":
                remedy += " GOOGLE_APPLICATION_CREDENTIALS names the file of a service account's key."
            yield Mistake((field,), f"is not read with auth = {scheme!r}", remedy, "(hidden)")
        elif protocol == "litellm":
            yield Mistake((field,), "is not read by LiteLLM", "Name a variable in api_key_env.", "(hidden)")
