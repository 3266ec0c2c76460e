"""Recognises, in the pieces of a stream, text that a snapshot has given before them."""

from dataclasses import dataclass


@dataclass(slots=True)
class Echo:
    """The text of snapshots that pieces may repeat (``ahead``), and how far they have (``at``).

    MiniMax begins a block with its text and then sends that text in pieces. Others begin a block with text
    and go on after it. The first piece that differs shows which a server does: until then a
    piece counts as a repetition.
    """

    ahead: str = ""
    at: int = 0

    def expect(self, text: str) -> None:
        """Note text that a snapshot gave before any piece did."""
        self.ahead += text

    def new_of(self, piece: str) -> str:
        """The part of ``piece`` that no snapshot has given; empty if it repeats one.

        Pieces that do not repeat what is ahead go on after it, together with those that seemed to repeat it.
        """
        if self.ahead.startswith(piece, self.at):
            self.at += len(piece)
            if self.at == len(self.ahead):
                self.forget()
            return ""
        ahead, said = self.ahead, self.ahead[: self.at] + piece
        self.forget()
        return said[len(ahead) :] if said.startswith(ahead) else said

    def forget(self) -> None:
        """Expect no text any more."""
        self.ahead, self.at = "", 0
