"""The simulated tokenizer: four characters a token."""

CHARS_PER_TOKEN = 4


def count_tokens(text: str) -> int:
    """Tokens in ``text``: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)
