"""Amazon Bedrock's Converse, as the simulated provider speaks it."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from zlib import crc32

from fairlane.lab.simulator.wire.dialect import (
    NO_PATH,
    Call,
    Dialect,
    OfferedTool,
    Presented,
    Problem,
    Reply,
    RequestError,
    Stamp,
    halves,
    write_json,
)
from fairlane.lab.simulator.wire.reading import is_number, last_question, named, read_positive

_BY_STATUS = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
    529: "ServiceUnavailableException",
}
_OPENAIS = {"temperature": "temperature", "topP": "top_p", "stopSequences": "stop"}
_BY_CODE = {"quota": "ServiceQuotaExceededException", "key": "UnrecognizedClientException"}
_AXIS_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("requests", "concurrency"), "requests"),
    **dict.fromkeys(("tokens", "input", "output"), "tokens"),
    "day": "requests per day",
}
_MEMBERS = frozenset(
    {
        *("additionalModelRequestFields", "additionalModelResponseFieldPaths", "guardrailConfig"),
        *("inferenceConfig", "messages", "outputConfig", "performanceConfig", "promptVariables"),
        *("requestMetadata", "serviceTier", "system", "toolConfig"),
    }
)
_BLOCKS = frozenset(
    {
        *("text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent"),
        *("cachePoint", "reasoningContent", "citationsContent", "searchResult"),
    }
)
_INFERENCE = frozenset({"maxTokens", "temperature", "topP", "stopSequences"})


class Bedrock(Dialect):
    """Converse; a stream consists of Amazon's frames. The key is ``ID:SECRET`` for signatures, or a token."""

    paths: ClassVar[tuple[str, ...]] = ("/model/{model}/{operation:converse|converse-stream}",)
    stream_type: ClassVar[str] = "application/vnd.amazon.eventstream"
    wrong_key_status: ClassVar[int] = 403

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """The path names the model and the operation, which says whether the answer is a stream.

        It rejects each request that breaks a constraint of Amazon's service model.
        """
        body = _object(payload, "body")
        _known(body, _MEMBERS, "body")
        inference = _object(body.get("inferenceConfig", {}), "inferenceConfig")
        _check_inference(inference)
        _object(body.get("additionalModelRequestFields", {}), "additionalModelRequestFields")
        conversation = _conversation(body.get("messages"))
        system = [
            _text(block, f"system.{at}") for at, block in enumerate(_list(body.get("system", []), "system"))
        ]
        return Call(
            model=path.get("model", ""),
            prompt="\n".join([*system, *(text for _, text in conversation)]),
            question=last_question(conversation),
            max_tokens=read_positive(inference, "maxTokens"),
            stream=path.get("operation") == "converse-stream",
            schema=_schema(body.get("outputConfig")),
            tools=_tools(body.get("toolConfig")),
        )

    def parameters(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Dialect.parameters`: they are in two objects, and a schema in a third."""
        inference = payload.get("inferenceConfig", {})
        own = {_OPENAIS[name]: value for name, value in inference.items() if name in _OPENAIS}
        form = payload.get("outputConfig")
        return {**own, **payload.get("additionalModelRequestFields", {}), "response_format": form}

    def unsupported(self, name: str, value: Any) -> Problem:
        """See `Dialect.unsupported`, by Converse's names."""
        field = {"top_p": "topP", "response_format": "outputConfig.textFormat"}.get(name, name)
        return Problem(400, f"This model doesn't support the {field} field. Remove {field} and try again.")

    def accepts(self, presented: Presented, key: str) -> bool:
        """A bearer token that equals ``key``, or else a valid signature."""
        bearer = self.presented_key(presented.headers)
        return bearer == key if bearer is not None else is_signed(presented, key)

    def error_document(self, problem: Problem) -> dict[str, Any]:
        """See `Dialect.error_document`."""
        return {"message": _message(problem)}

    def error_headers(self, problem: Problem) -> dict[str, str]:
        """The exception's name, which the body lacks."""
        return {"x-amzn-errortype": _kind(problem), "x-amzn-requestid": "simulated"}

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """See `Dialect.completion`."""
        block: dict[str, Any] = {"text": reply.text}
        if reply.tool is not None:
            use = {**_use(reply.tool.name, stamp), "input": json.loads(reply.tool.arguments)}
            block = {"toolUse": use}
        return write_json(
            {
                "output": {"message": {"role": "assistant", "content": [block]}},
                "stopReason": _stop_reason(reply),
                **_metadata(call, reply),
            }
        )

    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        """Frames from ``messageStart`` to ``metadata``."""

        def delta(content: Mapping[str, Any]) -> bytes:
            return event_frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": content})

        opening = event_frame("messageStart", {"role": "assistant", "p": "abcd"})
        if reply.tool is None:
            frames = [delta({"text": piece}) for piece in pieces]
        else:
            start = {"toolUse": _use(reply.tool.name, stamp)}
            opening += event_frame("contentBlockStart", {"contentBlockIndex": 0, "start": start})
            frames = [delta({"toolUse": {"input": part}}) for part in halves(reply.tool.arguments)]
        frames[0] = opening + frames[0]
        frames[-1] += (
            event_frame("contentBlockStop", {"contentBlockIndex": 0})
            + event_frame("messageStop", {"stopReason": _stop_reason(reply)})
            + event_frame("metadata", _metadata(call, reply))
        )
        return frames

    def stream_error(self, problem: Problem) -> bytes:
        """An exception frame; its name begins in lower case."""
        kind = _kind(problem)
        return _frame("exception", kind[0].lower() + kind[1:], self.error_document(problem))


def _use(name: str, stamp: Stamp) -> dict[str, Any]:
    return {"toolUseId": f"tooluse_{stamp.ordinal}", "name": name}


def _stop_reason(reply: Reply) -> str:
    if reply.tool is not None:
        return "tool_use"
    if reply.refused:
        return "content_filtered"
    return "max_tokens" if reply.truncated else "end_turn"


def _metadata(call: Call, reply: Reply) -> dict[str, Any]:
    usage = {
        "inputTokens": call.prompt_tokens,
        "outputTokens": reply.completion_tokens,
        "totalTokens": call.prompt_tokens + reply.completion_tokens,
    }
    return {"usage": usage, "metrics": {"latencyMs": 1}}


def _kind(problem: Problem) -> str:
    if problem.code in _BY_CODE:
        return _BY_CODE[problem.code]
    return _BY_STATUS.get(problem.status, "InternalServerException")


def _message(problem: Problem) -> str:
    axis = problem.code if problem.exceeded is None else problem.exceeded.axis
    words = _AXIS_WORDS.get(axis or "") if problem.status == 429 else None
    return f"Too many {words}, please wait before trying again." if words else problem.message


_SCHEME = re.compile(
    r"^AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, ?"
    r"SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$"
)
_REQUIRED = {"host", "x-amz-date"}
_STRING_TYPE = b"\x07"
"""Type of a header whose value is text."""


def is_signed(presented: Presented, key: str) -> bool:
    """Whether the signature of ``ID:SECRET`` covers method, path, body and the signed headers."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    found = _SCHEME.match(presented.headers.get("Authorization", ""))
    identity, _, secret = key.partition(":")
    if found is None or not secret:
        return False
    access_key, day, region, service, signed, signature = found.groups()
    names = set(signed.split(";"))
    stamp = presented.headers.get("X-Amz-Date", "")
    if (access_key, service, day) != (identity, "bedrock", stamp[:8]) or not names >= _REQUIRED:
        return False
    headers = {name: presented.headers.get(name, "") for name in names}
    request = AWSRequest(presented.method, presented.url, headers, presented.body)
    request.context["timestamp"] = stamp
    signer = SigV4Auth(Credentials(identity, secret), service, region)
    wanted = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return hmac.compare_digest(wanted, signature)


def event_frame(kind: str, payload: Mapping[str, object]) -> bytes:
    """An event whose payload is JSON."""
    return _frame("event", kind, payload)


def _frame(message_type: str, kind: str, payload: Mapping[str, object]) -> bytes:
    """Lengths and their checksum, headers, payload, and the checksum of all of it."""
    fields = {
        f":{message_type}-type": kind,
        ":content-type": "application/json",
        ":message-type": message_type,
    }
    headers = b"".join(_header(name, text) for name, text in fields.items())
    data = write_json(payload)
    lengths = (16 + len(headers) + len(data)).to_bytes(4) + len(headers).to_bytes(4)
    message = lengths + crc32(lengths).to_bytes(4) + headers + data
    return message + crc32(message).to_bytes(4)


def _header(name: str, text: str) -> bytes:
    return bytes([len(name)]) + name.encode() + _STRING_TYPE + len(text).to_bytes(2) + text.encode()


def _check_inference(inference: dict[str, Any]) -> None:
    _known(inference, _INFERENCE, "inferenceConfig")
    for name in ("temperature", "topP"):
        if not is_number(inference.get(name, 0), 0, 1):
            raise RequestError(f"Value at 'inferenceConfig.{name}' must be a number from 0 to 1")
    words = _list(inference.get("stopSequences", []), "inferenceConfig.stopSequences")
    if not all(isinstance(word, str) and word for word in words):
        raise RequestError("Value at 'inferenceConfig.stopSequences' must be texts")


def _conversation(messages: Any) -> list[tuple[str, str]]:
    """Role and text of each message: user and assistant in turns, the user first."""
    conversation: list[tuple[str, str]] = []
    for at, message in enumerate(_list(messages, "messages")):
        role = _object(message, f"messages.{at}").get("role")
        if role not in ("user", "assistant"):
            raise RequestError(f"Value at 'messages.{at}.role' must be one of user, assistant")
        if role == (conversation[-1][0] if conversation else "assistant"):
            raise RequestError("A conversation must alternate between user and assistant roles.")
        blocks = _list(message.get("content"), f"messages.{at}.content")
        conversation.append((role, "".join(_block_text(block, f"messages.{at}.content") for block in blocks)))
    if not conversation:
        raise RequestError("A conversation must start with a user message.")
    return conversation


def _block_text(block: Any, field: str) -> str:
    """A block's text; other members of the union, such as an image or a call of a tool, have none."""
    members = _object(block, field).keys() & _BLOCKS
    if len(members) != 1:
        raise RequestError(f"Value at '{field}' must have exactly one member of the union ContentBlock")
    return _text(block, field) if members == {"text"} else ""


def _text(block: Any, field: str) -> str:
    text = _object(block, field).get("text")
    if not isinstance(text, str) or not text.strip():
        raise RequestError(f"The text field in the ContentBlock object at {field} is blank.")
    return text


def _schema(output: Any) -> dict[str, Any] | None:
    match output:
        case None:
            return None
        case {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": str(text)}}}}:
            try:
                return _object(json.loads(text), "outputConfig.textFormat.structure.jsonSchema.schema")
            except ValueError:
                raise RequestError("outputConfig: the schema is not JSON") from None
    raise RequestError("Value at 'outputConfig.textFormat' must be a json_schema")


def _tools(config: Any) -> tuple[OfferedTool, ...]:
    """The tools that the model may call; a single one if ``toolChoice`` names it."""
    if config is None:
        return ()
    specs = _list(_object(config, "toolConfig").get("tools"), "toolConfig.tools")
    if not specs:
        raise RequestError("Value at 'toolConfig.tools' must have length greater than or equal to 1")
    tools = tuple(_tool(at, spec) for at, spec in enumerate(specs))
    match config.get("toolChoice", {"auto": {}}):
        case {"auto": {}} | {"any": {}}:
            return tools
        case {"tool": {"name": str(name)}} if wanted := named(tools, name):
            return wanted
    raise RequestError("Value at 'toolConfig.toolChoice' must be one of auto, any, tool")


def _tool(at: int, spec: Any) -> OfferedTool:
    match spec:
        case {"toolSpec": {"name": str(name), "inputSchema": {"json": dict(schema)}}} if name:
            return OfferedTool(name, schema)
    raise RequestError(f"Value at 'toolConfig.tools.{at}' must be a toolSpec with name and inputSchema.json")


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(f"Value at '{field}' must be an object")
    return value


def _list(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise RequestError(f"Value at '{field}' must be a list")
    return value


def _known(value: dict[str, Any], names: frozenset[str], field: str) -> None:
    for name in value:
        if name not in names:
            raise RequestError(f"Value at '{field}': {name} is not a member")
