"""How a request shows who sends it, one file a scheme."""
