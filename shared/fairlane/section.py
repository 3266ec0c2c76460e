"""What every section of the settings is: frozen, and without keys that nobody knows."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
