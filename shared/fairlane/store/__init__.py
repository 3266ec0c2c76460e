"""Redis, the one system of record: key names, Lua scripts, verbs that write, and reads for people.

Scheduler, workers, client and tools use it; it imports `core`, `model`, `config` and `datasets`.
"""
