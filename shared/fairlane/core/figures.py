"""Numbers in words, alike in every view: nothing is rounded to what it is not, as to all, none or 1."""

import math
import re

PLAIN_FROM, PLAIN_TO = 1e-4, 1e15
"""Numbers within these bounds are written without an exponent."""


def figure(value: float | None, digits: int = 4, sign: str = "") -> str:
    """A number to ``digits`` digits that count, with its whole part: ``"0.7333"``, ``"12,346"``.

    A dash for ``None``. A number below 1 is never ``"1"``. ``sign``: ``"+"`` writes it also before positives.
    """
    if value is None:
        return "–"
    value += 0.0  # -0.0 becomes 0.0
    size = abs(value)
    if size and not PLAIN_FROM <= size < PLAIN_TO:
        return f"{value:{sign}.{digits}g}"
    if size < 1 and round(size, digits) == 1:
        value = math.copysign(1 - 10.0**-digits, value)
    places = max(0, digits - 1 - math.floor(math.log10(size))) if size else 0
    shown = f"{value:{sign},.{places}f}"
    return shown.rstrip("0").rstrip(".") if places else shown


def percent(part: float, whole: float = 1, places: int = 0) -> str:
    """A share in percent: 100 and 0 are only for all and none; ``"<0.1"`` stands for less than that."""
    step = 10**-places
    share = 100 * part / whole if whole else 0.0
    shown = round(share, places)
    if shown == 0 < share:
        return f"<{step:g}"
    return f"{100 - step if share < 100 <= shown else shown:.{places}f}"


def dollars(cost: float | None) -> str:
    """``"$12.30"``; below a dollar with three digits that count, ``"$0.00012"``; a dash for no number."""
    if cost is None or not math.isfinite(cost):
        return "–"
    shown = f"${cost:,.{max(2, 2 - math.floor(math.log10(abs(cost)))) if cost else 2}f}"
    cents = shown.index(".") + 3
    return shown[:cents] + shown[cents:].rstrip("0")


def short(count: float) -> str:
    """A count in a few characters: ``"999,999"``, ``"1.23M"``, ``"45.6G"``."""
    for size, unit in ((10**9, "G"), (10**6, "M")):
        if count >= size:
            return f"{figure(count / size, 3)}{unit}"
    return f"{count:,.0f}"


def whole(written: float | str) -> int | float:
    """A number as JavaScript has it, which writes 1.0 as 1."""
    value = float(written)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


_PLAIN = re.compile(r"\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*", re.ASCII)


def plain_number(text: str) -> float:
    """The number in a text, in ASCII digits. Raises ``ValueError``, also for what Python's ``float`` takes
    beyond that: ``"1_0"``, ``"nan"``, other scripts' digits.
    """
    if not _PLAIN.fullmatch(text):
        raise ValueError(f"{text!r} is no number")
    return float(text)


def counted(count: int, noun: str, several: str = "") -> str:
    """``"1 job"``, ``"1,200 jobs"``; ``several`` is the plural of a noun that has another one."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def be(count: int) -> str:
    """``"is"`` after one, ``"are"`` after several."""
    return "is" if count == 1 else "are"


def latency(milliseconds: float) -> str:
    """How long one call takes, to three digits: ``"850 ms"``, ``"1.25 s"``, ``"95 s"``."""
    if milliseconds < 999.5:
        return f"{figure(milliseconds, 3)} ms"
    return f"{figure(max(1.0, milliseconds / 1000), 3)} s"


def took(milliseconds: float) -> str:
    """A duration to the second, and to a tenth of one below a minute: ``"42.3 s"``, ``"1:02:03"``."""
    if milliseconds < 60_000:
        return f"{max(0, int(milliseconds / 100)) / 10:.1f} s"
    minutes, seconds = divmod(int(milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02} min"
