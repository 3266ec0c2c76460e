"""A chat in OpenAI's form with an image, two calls of tools and their results."""

from __future__ import annotations

from typing import Any

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one pixel, in base64."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}

TURNS: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Which animal, and how is the weather?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
                "extra_content": {"google": {"thought_signature": "c2ln"}},
            },
            {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": ""}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": '{"degrees": 20}'},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "no city"}]},
    {"role": "user", "content": "So?"},
]


def calling(key: str) -> list[dict[str, Any]]:
    """A chat with a call of this id, and its result."""
    call = {"id": key, "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": key, "content": "20"},
    ]
