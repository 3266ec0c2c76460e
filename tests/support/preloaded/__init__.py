"""Starts schedulers and workers from a process that has imported them: each saves a second of CPU time.

`spawn` takes the place of `subprocess.Popen`. Each is a process of its own, in a session of its own.
"""

from tests.support.preloaded.children import spawn

__all__ = ["spawn"]
