"""Flower's templates with ours beside them, and entries for our pages in its navigation."""

from __future__ import annotations

from pathlib import Path

from tornado.template import Loader, Template

from fairlane.core.events import Event
from fairlane.telemetry.logs import get_logger

OURS = Path(__file__).parent / "templates"
NAVBAR = "navbar.html"
ENTRIES = "fairlane_navigation.html"
BEFORE = '<ul class="app-nav navbar-nav">'

log = get_logger("flower")


class StackedLoader(Loader):
    """Looks for a template among ours first. Flower's files stay as they are."""

    def __init__(self, flowers: str) -> None:
        """``flowers`` is the folder of Flower's own templates."""
        super().__init__(flowers)

    def _create_template(self, name: str) -> Template:
        own = OURS / name
        if name == NAVBAR:
            return Template(self._with_entries(), name=name, loader=self)
        if own.parent == OURS and own.is_file():
            return Template(own.read_bytes(), name=name, loader=self)
        return super()._create_template(name)

    def _with_entries(self) -> str:
        """Flower's navigation, ours before its first entry; without them where it looks different."""
        text = Path(self.root, NAVBAR).read_text(encoding="utf-8")
        if BEFORE not in text:
            log.warning(Event.FLOWER_NAVIGATION_UNKNOWN, template=NAVBAR)
            return text
        entries = (OURS / ENTRIES).read_text(encoding="utf-8")
        return text.replace(BEFORE, f"{BEFORE}\n{entries}", 1)
