"""Serves the pages, which are HTML that a script fills and updates from `data`, and their static files."""

from pathlib import Path

from tornado.template import Loader, Template
from tornado.web import StaticFileHandler

from fairlane.core.events import Event
from fairlane.flower.web.guarded import Page
from fairlane.model.run import RunRef
from fairlane.telemetry.logs import get_logger

STATIC = Path(__file__).parent / "static"


class LanesPage(Page):
    """All lanes."""

    def get(self) -> None:
        """Send the page of all lanes."""
        self.render("fairlane_lanes.html")


class LanePage(Page):
    """One lane, with its chart."""

    section = "lanes"

    async def get(self, lane: str) -> None:
        """Send the page of one lane. 404 where there is no such lane."""
        await self.require(self.readers.lanes.one, lane, "fine")
        self.render("fairlane_lane.html", lane=lane)


class RunsPage(Page):
    """The latest runs."""

    def get(self) -> None:
        """Send the page of the latest runs."""
        self.render("fairlane_runs.html", read_only=self.flower.options.read_only)


class RunPage(Page):
    """One run, with its buttons."""

    section = "runs"

    async def get(self, team: str, run: str) -> None:
        """Send the page of one run. 404 where there is no such run."""
        await self.require(self.readers.runs.look, RunRef(team, run))
        self.render("fairlane_run.html", team=team, run=run, read_only=self.flower.options.read_only)


class ItemPage(Page):
    """One item of a run."""

    section = "runs"

    async def get(self, team: str, run: str, item: str) -> None:
        """Send the page of one item. 404 where there is no such run or item."""
        await self.require(self.readers.item.of, team, run, int(item))
        self.render("fairlane_item.html", team=team, run=run, item=int(item))


class TeamsPage(Page):
    """All teams."""

    def get(self) -> None:
        """Send the page of all teams."""
        self.render("fairlane_teams.html")


class Assets(StaticFileHandler):
    """Scripts and styles, without a login as Flower's own; browsers revalidate them at each use."""

    def set_extra_headers(self, path: str) -> None:
        """Make browsers revalidate the file and trust its type."""
        self.set_header("Cache-Control", "no-cache")
        self.set_header("X-Content-Type-Options", "nosniff")


OWN_TEMPLATES = Path(__file__).parent / "templates"
NAVBAR = "navbar.html"
ENTRIES = "fairlane_navigation.html"
BEFORE = '<ul class="app-nav navbar-nav">'

log = get_logger("flower")


class StackedLoader(Loader):
    """Loads Fairlane's templates first, then Flower's, whose files stay unchanged."""

    def __init__(self, flowers: str) -> None:
        """``flowers`` is the folder of Flower's own templates."""
        super().__init__(flowers)

    def _create_template(self, name: str) -> Template:
        own = OWN_TEMPLATES / name
        if name == NAVBAR:
            return Template(self._with_entries(), name=name, loader=self)
        if own.parent == OWN_TEMPLATES and own.is_file():
            return Template(own.read_bytes(), name=name, loader=self)
        return super()._create_template(name)

    def _with_entries(self) -> str:
        """Flower's navigation with Fairlane's entries first; unchanged if its HTML is unknown."""
        text = Path(self.root, NAVBAR).read_text(encoding="utf-8")
        if BEFORE not in text:
            log.warning(Event.FLOWER_NAVIGATION_UNKNOWN, template=NAVBAR)
            return text
        entries = (OWN_TEMPLATES / ENTRIES).read_text(encoding="utf-8")
        return text.replace(BEFORE, f"{BEFORE}\n{entries}", 1)
