"""Names what came in place of an answer: a page by its title, anything else by how it begins."""

import html

from fairlane_workers.providers.errors.wording import bounded

LONGEST = 120
"""Characters of a body or a title that a message quotes."""

_SEARCHED = 64 * 1024
"""Bytes in which a page has its title."""

_BLANKS = b"\xef\xbb\xbf \t\r\n"


def title_of(body: bytes) -> str | None:
    """The title of an HTML page, on one line; ``None`` if the body is no page or has none."""
    if not _is_page(body):
        return None
    page = body[:_SEARCHED]
    lower = page.lower()
    begin = lower.find(b">", lower.find(b"<title")) + 1 if b"<title" in lower else 0
    if not begin:
        return None
    end = lower.find(b"</title", begin)
    text = page[begin : end if end >= 0 else None][: 4 * LONGEST]
    words = html.unescape(text.decode("utf-8", "replace")).split()
    return bounded(" ".join(words), LONGEST) or None


def page_named(body: bytes, content_type: str) -> str | None:
    """What a page in place of JSON is; ``None`` for any other body."""
    if not _is_page(body):
        return None
    kind = content_type.partition(";")[0].strip() or "no content type"
    title = title_of(body)
    told = f"with the title {title!r}" if title else f"that begins with {_first_line(body)!r}"
    return f"not JSON: a page ({bounded(kind, LONGEST)}) {told}"


def quoted(body: bytes) -> str:
    """How a body begins, in quotes."""
    return repr(bounded(body.lstrip(_BLANKS)[: 4 * LONGEST].decode("utf-8", "replace"), LONGEST))


def _is_page(body: bytes) -> bool:
    return body[:_SEARCHED].lstrip(_BLANKS).startswith(b"<")


def _first_line(body: bytes) -> str:
    line = body.lstrip(_BLANKS)[: 4 * LONGEST].splitlines()[0]
    return bounded(line.decode("utf-8", "replace"), LONGEST)
