"""What a run will take, before it is submitted: calls, tokens, cost and time."""

from fairlane.estimate.estimating import estimate
from fairlane.estimate.forecast import Forecast, LaneForecast, ModelForecast
from fairlane.estimate.sampling import Sample, take_sample

__all__ = ["Forecast", "LaneForecast", "ModelForecast", "Sample", "estimate", "take_sample"]
