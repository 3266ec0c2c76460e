"""Reads images, recordings and files of a chat, by their bytes rather than their labels."""

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from mimetypes import guess_type
from typing import Literal, TypeAlias

from fairlane_workers.providers.dialect import UnmappableError

Kind: TypeAlias = Literal["image", "audio", "file"]

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Types of images that every protocol takes."""

PDF = "application/pdf"

_DATA_URL = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]*)*?;base64,(?P<data>.*)", re.DOTALL | re.IGNORECASE)
_BEGINNINGS: Mapping[bytes, str] = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": PDF,
}
_OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("image/jpg", "image/pjpeg", "image/jpe"), "image/jpeg"),
    "image/x-png": "image/png",
    "application/x-pdf": PDF,
}


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a recording or a file: base64 ``data``, or the ``url`` of one; ``place`` is for errors."""

    place: str
    kind: Kind
    media_type: str | None
    data: str | None = None
    url: str | None = None
    name: str | None = None

    def unmappable(self, protocol: str, remedy: str) -> UnmappableError:
        """The error of a protocol that cannot take it."""
        return UnmappableError(f'{self.place}: the protocol "{protocol}" {remedy}')


def read_media(kind: Kind, url: str, place: str, name: str | None = None) -> Media:
    """An image or a file from its address or its ``data:`` URL. Raises `UnmappableError` for anything else.

    The first bytes say what it is. Where they are those of no image or PDF, its label does. A PDF is a file,
    whatever part it stands in.
    """
    url = url.strip()
    if found := _DATA_URL.fullmatch(url):
        data = without_blanks(found["data"])
        label = found["type"].strip().lower() or None
        media_type = type_of(data) or _OTHER_NAMES.get(label or "", label)
        return Media(place, _kind_of(media_type, kind), media_type, data, name=name)
    if url[:5].lower() == "data:" or "://" not in url:
        raise UnmappableError(f'{place}: an address or "data:<type>;base64,<data>" is expected')
    media_type = guess_type(url.partition("?")[0])[0]
    return Media(place, _kind_of(media_type, kind), media_type, url=url, name=name)


def type_of(data: str) -> str | None:
    """The type of an image or a PDF by the first bytes of its base64; ``None`` for all others."""
    try:
        first = b64decode(data[:16], validate=True)
    except ValueError:
        return None
    if first[:4] == b"RIFF" and first[8:12] == b"WEBP":
        return "image/webp"
    return next((name for begins, name in _BEGINNINGS.items() if first.startswith(begins)), None)


def without_blanks(data: str) -> str:
    """Base64 without the ends of lines that some encoders put in; providers reject them."""
    parts = data.split(maxsplit=1)
    return "".join(data.split()) if len(parts) > 1 or (parts and parts[0] != data) else data


def _kind_of(media_type: str | None, kind: Kind) -> Kind:
    if media_type == PDF:
        return "file"
    return "image" if media_type in IMAGES else kind
