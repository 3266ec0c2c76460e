"""Makes control characters visible, so that a text from elsewhere cannot control a terminal.

Names, errors and outputs come from teams and providers. An escape sequence in one could set a window's title,
write to a clipboard, hide a line, or imitate another.
"""

import json
import re

# Unicode's categories Cc, Cf, Cs, Zl and Zp: controls, formats such as bidirectional overrides, surrogates,
# and separators of lines. Not the joiners U+200C and U+200D, which several scripts need, nor what lies beyond
# U+FFFF: tags and signs of historic scripts, which control no terminal.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
)
_STEERING = re.compile(f"[{_HIDDEN}]")
_STEERING_A_LINE = re.compile(f"[{_HIDDEN}\t\n]")


def visible(text: str) -> str:
    r"""``text`` with every control character but a tab and a line's end written out, as ``\x1b``."""
    return _STEERING.sub(_written_out, text)


def visible_line(text: str) -> str:
    r"""The same on one line: a tab is ``\t``, a line's end ``\n``."""
    return _STEERING_A_LINE.sub(_written_out, text)


def visible_json(document: str) -> str:
    r"""The same JSON document, with control characters in its texts written as ``\u009b``."""
    return _STEERING.sub(
        lambda found: json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f", document
    )


def _written_out(found: re.Match[str]) -> str:
    sign = found[0]
    if sign in "\t\n":
        return "\\t" if sign == "\t" else "\\n"
    code = ord(sign)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"
