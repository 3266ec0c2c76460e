"""Where settings come from: a file, the environment, arguments; and how mistakes in them are told."""

from fairlane.configuration.environment import process_environment
from fairlane.configuration.loader import load_secrets, load_settings

__all__ = ["load_secrets", "load_settings", "process_environment"]
