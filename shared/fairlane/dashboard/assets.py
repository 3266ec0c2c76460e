"""Our scripts and styles."""

from __future__ import annotations

from tornado.web import StaticFileHandler


class Assets(StaticFileHandler):
    """Open to everybody, as Flower's are. Browsers ask each time whether a file is still the same."""

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Cache-Control", "no-cache")
        self.set_header("X-Content-Type-Options", "nosniff")
