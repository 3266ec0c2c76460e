"""Records as files and tables: JSON lines, CSV, Parquet, pandas; with a bounded number of records in memory.

The means of their scores, with standard errors, are here, too.
Client, commands and applications use it, and workers its words for why an answer ended; it imports `core` and `model`.
"""
