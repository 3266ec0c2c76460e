"""Amazon's wire format, as a server handles it: signatures (Signature Version 4) and event-stream frames.

Signatures are compared with botocore's own. Frames have the type ``application/vnd.amazon.eventstream``.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from zlib import crc32

from fairlane.lab.simulator.wire.dialect import Presented, write_json

_SCHEME = re.compile(
    r"^AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, ?"
    r"SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$"
)
_REQUIRED = {"host", "x-amz-date"}
_STRING_TYPE = b"\x07"
"""Type of a header whose value is text."""


def is_signed(presented: Presented, key: str, service: str) -> bool:
    """Whether the signature of ``ID:SECRET`` covers method, path, body and the signed headers."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    found = _SCHEME.match(presented.headers.get("Authorization", ""))
    identity, _, secret = key.partition(":")
    if found is None or not secret:
        return False
    access_key, day, region, service_named, signed, signature = found.groups()
    names = set(signed.split(";"))
    stamp = presented.headers.get("X-Amz-Date", "")
    if (access_key, service_named, day) != (identity, service, stamp[:8]) or not names >= _REQUIRED:
        return False
    headers = {name: presented.headers.get(name, "") for name in names}
    request = AWSRequest(presented.method, presented.url, headers, presented.body)
    request.context["timestamp"] = stamp
    signer = SigV4Auth(Credentials(identity, secret), service, region)
    wanted = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return hmac.compare_digest(wanted, signature)


def event_frame(kind: str, payload: Mapping[str, object]) -> bytes:
    """An event whose payload is JSON."""
    return _frame("event", {":event-type": kind}, payload)


def exception_frame(kind: str, payload: Mapping[str, object]) -> bytes:
    """The frame that ends a failed stream."""
    return _frame("exception", {":exception-type": kind}, payload)


def _frame(message_type: str, kind: Mapping[str, str], payload: Mapping[str, object]) -> bytes:
    """Lengths and their checksum, headers, payload, and the checksum of all of it."""
    named = {**kind, ":content-type": "application/json", ":message-type": message_type}
    headers = b"".join(_header(name, text) for name, text in named.items())
    data = write_json(payload)
    lengths = (16 + len(headers) + len(data)).to_bytes(4) + len(headers).to_bytes(4)
    message = lengths + crc32(lengths).to_bytes(4) + headers + data
    return message + crc32(message).to_bytes(4)


def _header(name: str, text: str) -> bytes:
    return bytes([len(name)]) + name.encode() + _STRING_TYPE + len(text).to_bytes(2) + text.encode()
