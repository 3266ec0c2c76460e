"""How numbers are written: characters with one meaning, the grammar of a number, and its surroundings."""
