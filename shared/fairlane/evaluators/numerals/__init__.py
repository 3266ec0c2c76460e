"""How numbers are written: signs that mean the same, the grammar of a number, and marked answers."""
