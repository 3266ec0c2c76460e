"""Counts prompts with their model's tokenizer, if this machine has its vocabulary. Downloads nothing."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from fairlane.core.events import Event
from fairlane.model.tokens import Estimate, estimate_tokens
from fairlane.pipeline.rendering import Call
from fairlane.telemetry.logs import get_logger

FOLDER_VARIABLE = "TIKTOKEN_CACHE_DIR"
"""Names the folder of the vocabularies, as tiktoken's own cache (tiktoken, `load.py`)."""

VOCABULARIES: Mapping[str, tuple[str, str]] = {
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}
"""File name (SHA-1 of its address) and SHA-256 of each vocabulary (tiktoken, `openai_public.py`)."""

MOST_CHARACTERS = 20_000
"""Most characters of a call that are counted: one word of this length takes 20 ms of a tick."""

MODELS_KEPT = 1024

log = get_logger("tokenizers")


class Encoding(Protocol):
    """The part of tiktoken's encodings that is used."""

    def encode(self, text: str, *, disallowed_special: Sequence[str]) -> list[int]:
        """The tokens of ``text``; names of special tokens in it count as text."""
        ...


class Tokenizers:
    """The encodings, by name, whose vocabulary this machine has."""

    def __init__(self, encodings: Mapping[str, Encoding]) -> None:
        self._encodings = encodings
        self._encoding_of = lru_cache(MODELS_KEPT)(self._find)

    def tokens(self, call: Call) -> Estimate:
        """The tokens to reserve for a call; counts its texts if its model's encoding is known."""
        rough = call.tokens
        encoding = self._encoding_of(call.model)
        texts = [*_contents(call), *_names(call)]
        if encoding is None or not texts or sum(map(len, texts)) > MOST_CHARACTERS:
            return rough
        counts = [len(encoding.encode(text, disallowed_special=())) for text in texts]
        spared = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) - sum(counts)
        contents = sum(1 for _ in _contents(call))
        assumed = sum(estimate_tokens(text) for text in texts[:contents])
        return rough._replace(
            input=rough.input - assumed + sum(counts[:contents]), most_input=rough.most_input - spared
        )

    def _find(self, model: str) -> Encoding | None:
        from tiktoken.model import encoding_name_for_model

        try:
            return self._encodings.get(encoding_name_for_model(model.partition(":")[2].rpartition("/")[2]))
        except KeyError:
            return None


def load_tokenizers(environ: Mapping[str, str]) -> Tokenizers | None:
    """The tokenizers of this machine; ``None`` if it has none. Logs what is missing."""
    found, missing_words = _found(environ.get(FOLDER_VARIABLE, ""))
    if missing_words:
        log.info(Event.TOKENIZERS_MISSING, reason=missing_words)
    return Tokenizers(found) if found else None


def _found(folder: str) -> tuple[dict[str, Encoding], str]:
    """The encodings whose vocabulary is in a folder, by name, and a message about missing ones."""
    if not folder:
        return {}, f"{FOLDER_VARIABLE} is not set: name a folder that has tiktoken's vocabularies"
    try:
        import tiktoken
    except ImportError:
        return {}, "tiktoken is not installed: pip install 'fairlane[tokenizers]'"
    missing = {
        name: file for name, (file, digest) in VOCABULARIES.items() if not _is_whole(folder, file, digest)
    }
    missing_words = (
        f"{FOLDER_VARIABLE}={folder} lacks {', '.join(missing.values())}: copy tiktoken's cache there"
    )
    found: dict[str, Encoding] = {
        name: tiktoken.get_encoding(name) for name in VOCABULARIES if name not in missing
    }
    return found, missing_words if missing else ""


def _is_whole(folder: str, file: str, digest: str) -> bool:
    """Whether tiktoken would take the file, rather than delete it and download another."""
    try:
        return hashlib.sha256(Path(folder, file).read_bytes()).hexdigest() == digest
    except OSError:
        return False


def _contents(call: Call) -> Iterator[str]:
    """The texts that a call's rough estimate counts at four characters a token."""
    if call.inputs is not None:
        yield from call.inputs
    for message in call.messages if call.inputs is None else ():
        if isinstance(content := message.get("content"), str):
            yield content


def _names(call: Call) -> Iterator[str]:
    """The other texts of messages, like roles; the upper bound of a prompt includes their bytes."""
    for message in call.messages if call.inputs is None else ():
        yield from (value for key, value in message.items() if key != "content" and isinstance(value, str))
