"""Slots that lanes could fill, as metrics: what autoscaling of the workers goes by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fairlane.admission.demand import slots_needed, slots_needed_in_all
from fairlane.admission.views import LaneView
from fairlane.label_values import LabelValues
from fairlane_scheduler.monitoring.metrics import Ledger


def demand_families(
    views: Sequence[LaneView], ledger: Ledger, names: LabelValues, max_in_flight: int
) -> Iterator[Metric]:
    """Without samples where nothing is known, so that an autoscaler does not take that for no demand."""
    each = {view.lane: slots_needed(view, ledger.ready.get(view.lane, 0)) for view in views}
    by_name: dict[str, int] = defaultdict(int)
    for lane, needed in each.items():
        by_name[names.of(lane)[0]] += needed
    family = GaugeMetricFamily("fairlane_lane_slots_needed", "Slots it could fill now", labels=("lane",))
    for name, needed in by_name.items():
        family.add_metric((name,), needed)
    yield family
    total = GaugeMetricFamily("fairlane_slots_needed", "Slots that all lanes could fill now")
    if ledger.known:
        total.add_metric((), slots_needed_in_all(each.values(), max_in_flight))
    yield total
