"""Placeholder."""
import json, zlib
from collections.abc import Iterator
from typing import Any
def encode_page(rows: list[dict[str, Any]]) -> bytes:
    return zlib.compress(json.dumps(rows).encode(), 1)
def decode_page(blob: bytes) -> list[dict[str, Any]]:
    return json.loads(zlib.decompress(blob))
def read_rows(dataset: Any) -> Iterator[dict[str, Any]]:
    if isinstance(dataset, str):
        for line in open(dataset): yield json.loads(line)
    else: yield from dataset
def pages(rows: Any, page_rows: int) -> Iterator[list[dict[str, Any]]]:
    page=[]
    for row in rows:
        page.append(row)
        if len(page)==page_rows: yield page; page=[]
    if page: yield page
