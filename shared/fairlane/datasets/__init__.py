"""Datasets: rows read as a stream from files or iterables, and the pages they travel in."""

from fairlane.datasets.pages import decode_page, encode_page, pages
from fairlane.datasets.reading import read_rows
from fairlane.datasets.sessions import Numbering

__all__ = ["Numbering", "decode_page", "encode_page", "pages", "read_rows"]
