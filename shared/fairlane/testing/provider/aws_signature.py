"""Whether a request is signed with a key that is known (Signature Version 4), by botocore's arithmetic."""

from __future__ import annotations

import hmac
import re

from fairlane.testing.provider.dialect import Presented

_SCHEME = re.compile(
    r"^AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, ?"
    r"SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$"
)
_DEMANDED = {"host", "x-amz-date"}


def is_signed(presented: Presented, key: str, service: str) -> bool:
    """Whether method, path, body and the headers that are signed bear the signature of ``ID:SECRET``."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    found = _SCHEME.match(presented.headers.get("Authorization", ""))
    identity, _, secret = key.partition(":")
    if found is None or not secret:
        return False
    access_key, day, region, named, signed, signature = found.groups()
    names = set(signed.split(";"))
    stamp = presented.headers.get("X-Amz-Date", "")
    if (access_key, named, day) != (identity, service, stamp[:8]) or not names >= _DEMANDED:
        return False
    headers = {name: presented.headers.get(name, "") for name in names}
    request = AWSRequest(presented.method, presented.url, headers, presented.body)
    request.context["timestamp"] = stamp
    signer = SigV4Auth(Credentials(identity, secret), service, region)
    wanted = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return hmac.compare_digest(wanted, signature)
