"""Exporters that send a run's records to tools for evaluations: MLflow, Phoenix, Inspect. The client finds
them through entry points; they import shared parts of `export`, and `model`. Each keeps the records on disk
meanwhile, and loads its tool's own package when it is used.
"""
