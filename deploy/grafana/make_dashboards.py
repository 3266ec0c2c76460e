"""Writes the dashboards from `panels.yml` beside this file: `python deploy/grafana/make_dashboards.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
FOLDER = HERE / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS, WIDTH, HEIGHT, STAT_HEIGHT = 24, 12, 8, 4

_VARIABLES: dict[str, dict[str, Any]] = {
    "datasource": {"label": "Data source", "type": "datasource", "query": "prometheus"},
    "lane": {
        "label": "Lane",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(fairlane_lane_in_flight, lane)", "refId": "lane"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    },
}


def dashboards() -> dict[str, dict[str, Any]]:
    """Every dashboard by its file's name."""
    spec = yaml.safe_load((HERE / "panels.yml").read_text(encoding="utf-8"))
    return {f"{each['uid']}.json": _dashboard(each) for each in spec}


def _dashboard(spec: Mapping[str, Any]) -> dict[str, Any]:
    names = ["datasource", "lane"] if spec.get("by_lane") else ["datasource"]
    return {
        "uid": spec["uid"],
        "title": spec["title"],
        "tags": ["fairlane"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "links": [{"title": "Fairlane", "type": "dashboards", "tags": ["fairlane"], "keepTime": True}],
        "templating": {"list": [{"name": name, **_VARIABLES[name]} for name in names]},
        "panels": [{"id": number, **panel} for number, panel in enumerate(_placed(spec["rows"]), start=1)],
    }


def _placed(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    y = 0
    for row in rows:
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        yield {"type": "row", "title": row["row"], "collapsed": False, "panels": [], "gridPos": place}
        x, y = 0, y + 1
        height = STAT_HEIGHT if all(panel.get("kind") == "stat" for panel in row["panels"]) else HEIGHT
        for panel in row["panels"]:
            width = panel.get("width", WIDTH)
            if x + width > COLUMNS:
                x, y = 0, y + height
            yield _panel(panel) | {"gridPos": {"x": x, "y": y, "w": width, "h": height}}
            x += width
        y += height


def _panel(spec: Mapping[str, Any]) -> dict[str, Any]:
    kind, stacked = spec.get("kind", "timeseries"), spec.get("stacked", False)
    drawn = {
        "drawStyle": "line",
        "fillOpacity": 20 if stacked else 0,
        "showPoints": "never",
        "axisSoftMin": 0,
        "stacking": {"mode": "normal" if stacked else "none"},
    }
    legend = {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]}
    stat = {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area"}
    return {
        "type": kind,
        "title": spec["title"],
        "description": spec.get("about", ""),
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": spec["unit"], "custom": drawn}, "overrides": []},
        "options": stat if kind == "stat" else {"legend": legend},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "expr": query["expr"],
                "legendFormat": query.get("legend", ""),
                "datasource": SOURCE,
            }
            for number, query in enumerate(spec["queries"])
        ],
    }


def main() -> None:
    """Write them."""
    for name, dashboard in dashboards().items():
        text = json.dumps(dashboard, indent=2, ensure_ascii=False)
        (FOLDER / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
