"""Maps providers to connections and models, with the parameters of their calls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.programs.programs import is_program
from fairlane.apps.promptfoo.reading.parameters import read_parameters
from fairlane.apps.promptfoo.reading.places import Place, names
from fairlane.config.problems import did_you_mean
from fairlane.model.lane import FUNCTIONS, split_model

_KEYS = frozenset(("id", "label", "config", "delay", "prompts", "transform", "env"))
_CHAT = frozenset(("chat", "messages", "responses", "text-generation", "converse"))
_EMBEDS = frozenset(("embedding", "embeddings"))
_OTHER = names(
    "completion embedding embeddings image realtime moderation transcription speech tts video assistant",
    "agents agent codex codex-sdk live",
)
_CODE = frozenset(("exec", "python", "javascript", "file", "package", "golang", "ruby", "browser", "script"))
ECHO = "echo"
"""The provider that answers with its prompt."""

ANSWER, CALLED = "__answer", "__called"
"""Fields of a row that this process answered: the output, and facts about the call."""

_NO_MODEL = frozenset(("http", "https", "webhook", "ws", "wss", "websocket", "promptfoo", "mcp", "sequence"))


@dataclass(frozen=True, slots=True)
class Answerer:
    """Answers for a provider that is not a model: a program's function or class; ``path=None``: echo."""

    path: Path | None = None
    function: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Provider:
    """A model to call. ``label`` is its name in the configuration, ``identity`` its id.

    ``delay`` is in seconds. ``prompts`` are the labels of its prompts, ``None``: all. ``instructions`` are
    its system prompt. ``transform`` changes its outputs; ``legacy``: function calls have OpenAI's deprecated
    form. ``affixes`` stand before and after each prompt. With ``answers``, this process calls it, no worker,
    and ``model`` is its id.
    """

    label: str
    model: str
    params: Mapping[str, Any] = field(default_factory=dict)
    delay: float = 0.0
    identity: str = ""
    prompts: tuple[str, ...] | None = None
    instructions: str | None = None
    transform: tuple[str, Place] | None = None
    legacy: bool = False
    affixes: tuple[str, str] = ("", "")
    answers: Answerer | None = None

    @property
    def changes_outputs(self) -> bool:
        """Whether its outputs differ from the texts that the model answers with."""
        form = self.params.get("response_format")
        structured = isinstance(form, Mapping) and form.get("type") == "json_schema"
        program = self.answers is not None and self.answers.path is not None
        return bool(self.transform) or program or "tools" in self.params or structured


@dataclass(frozen=True, slots=True)
class Providers:
    """Maps providers. ``connections`` are those configured, if known; ``given`` maps ids to models of
    connections.
    """

    connections: frozenset[str] | None
    given: Mapping[str, str]

    def all(self, raw: Any, place: Place, wanted: Callable[[Any], bool]) -> list[Provider]:
        """Every provider of a configuration's ``providers`` that is ``wanted`` as it is written."""
        if not (isinstance(raw, str) and is_program(raw)):
            raw, place = place.referred(raw)
        listed = raw if isinstance(raw, list) else [] if raw is None else [raw]
        found: list[Provider] = []
        left = 0
        for number, each in enumerate(listed):
            where = place / number if isinstance(raw, list) else place
            if not (isinstance(each, str) and (is_program(each) or each in self.given)):
                each, where = where.referred(each)
            for one in each if isinstance(each, list) else [each]:
                if one is not None and not wanted(one):
                    left += 1
                elif one is not None and (provider := self.one(one, where, here=True)):
                    found.append(provider)
        if not listed:
            place.refuse("there is no provider")
        elif left and not found:
            place.refuse("no provider matches --filter-providers")
        return found

    def one(self, raw: Any, place: Place, *, embeds: bool = False, here: bool = False) -> Provider | None:
        """Read one provider: an id, or an object with an id and options. ``embeds``: it must make embeddings,
        as in ``openai:embedding:text-embedding-3-small``. ``here``: it may also be a program or ``echo``.
        """
        if isinstance(raw, str) and here and self._is_here(raw):
            return Provider(raw, raw, identity=raw, answers=self._answers(raw, {}, place))
        if isinstance(raw, str):
            model = self.model(raw, place, embeds=embeds)
            return Provider(raw, model, identity=raw) if model else None
        if not isinstance(raw, Mapping):
            place.refuse("this is no provider")
            return None
        if "id" not in raw and len(raw) == 1:
            name, options = next(iter(raw.items()))
            inner = dict((place / name).mapping(options))
            label = inner.pop("id", None)
            raw, place = {"id": name, **({"label": label} if label else {}), **inner}, place / name
        return self._described(raw, place, embeds=embeds, here=here)

    def _is_here(self, identity: object) -> bool:
        """Whether a provider's id names a program, or ``echo``, and is mapped to no model."""
        if not isinstance(identity, str) or identity in self.given:
            return False
        return identity == ECHO or is_program(_file(identity))

    def model(self, identity: str, place: Place, *, embeds: bool = False) -> str | None:
        """``openai:chat:gpt-4o`` → ``openai:gpt-4o``, where a connection ``openai`` is configured."""
        if identity in self.given:
            return self._checked(identity, self.given[identity], place)
        kind, _, rest = identity.partition(":")
        first, _, name = rest.partition(":")
        word = _EMBEDS if embeds else _CHAT
        if name and first in word:
            rest = name
        if problem := _refused(identity, kind, rest):
            place.refuse(problem)
            return None
        return self._checked(identity, f"{kind}:{rest}", place)

    def _checked(self, identity: str, model: str, place: Place) -> str | None:
        try:
            connection, _ = split_model(model)
        except ValueError:
            place.refuse(f"{model!r} names no connection and model")
            return None
        if self.connections is None or connection in (FUNCTIONS, *self.connections):
            return model
        near = did_you_mean(connection, sorted(self.connections))
        remedy = near or f"configure it, or give --map-provider {identity}=<connection>:<model>"
        place.refuse(f"no connection {connection!r} is configured for {identity!r}: {remedy}")
        return None

    def _described(
        self, raw: Mapping[str, Any], place: Place, *, embeds: bool = False, here: bool = False
    ) -> Provider | None:
        identity, label = raw.get("id"), raw.get("label")
        if not isinstance(identity, str):
            place.refuse("a provider needs an id")
            return None
        place.check_names(raw, "a provider", _KEYS)
        config, where = (place / "config").referred(raw.get("config"))
        config = where.mapping(config)
        answers = self._answers(identity, config, place / "id") if here and self._is_here(identity) else None
        known = read_parameters(identity, {} if answers else config, where)
        model = identity if answers else self.model(identity, place / "id", embeds=embeds)
        delay = self._delay(raw.get("delay") or 0, place / "delay")
        prompts = raw.get("prompts")
        listed = [prompts] if isinstance(prompts, str) else prompts
        transform, said = raw.get("transform", known.transform), place / "transform"
        if not isinstance(transform, str | None):
            said.refuse("a transform is a text")
            transform = None
        if not model:
            return None
        return Provider(
            str(label or identity),
            model,
            known.values,
            delay,
            identity,
            tuple(map(str, listed)) if isinstance(listed, list) else None,
            known.instructions,
            (transform, said) if transform else None,
            known.legacy,
            known.affixes,
            answers,
        )

    def _answers(self, identity: str, config: Mapping[str, Any], place: Place) -> Answerer | None:
        """The answerer of a provider that is not a model; after a problem, an echo."""
        if identity == ECHO:
            return Answerer()
        found = place.program(_file(identity))
        if found is None:
            return Answerer()
        place.note(
            f"{identity} is a program: it answers here, one call at a time, beyond the limits of lanes"
        )
        return Answerer(*found, config)

    def _delay(self, raw: Any, place: Place) -> float:
        if isinstance(raw, int | float) and raw >= 0:
            return raw / 1000
        place.refuse("a delay is a number of milliseconds")
        return 0.0


def _file(identity: str) -> str:
    """``python:agent.py`` names the same file as ``file://agent.py``."""
    return identity.removeprefix("python:")


def _refused(identity: str, kind: str, rest: str) -> str | None:
    remedy = f"give --map-provider {identity}=<connection>:<model>"
    if kind in _CODE or is_program(identity):
        return f"the provider {identity!r} is a program, and only models are called: {remedy}"
    if kind in _NO_MODEL or not rest:
        return f"the provider {identity!r} names no model of a connection: {remedy}"
    first, separator, _ = rest.partition(":")
    if separator and first in _OTHER:
        return f"the provider {identity!r} is no chat model: only chats are called, or {remedy}"
    return None
