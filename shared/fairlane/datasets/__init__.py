"""Datasets: rows read as a stream from files or iterables, and the pages they travel in."""

from fairlane.datasets.pages import decode_page, encode_page, pages
from fairlane.datasets.reading import read_rows

__all__ = ["decode_page", "encode_page", "pages", "read_rows"]
