"""Records as files and tables: JSON lines, CSV, Parquet, pandas; with a bounded number of records in memory.
It also has the means and standard errors of scores, and the meanings of finish reasons. Client, applications
and workers use it; it imports `core` and `model`.
"""
