"""Records as files and tables: JSON lines, CSV, Parquet, pandas; with a bounded number of records in memory.

Client and applications use it; it imports `core` and `model`.
"""
