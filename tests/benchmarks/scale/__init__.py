"""How far one deployment goes: workers × lanes, a ladder of rates, and machines computed from both."""
