"""``fairlane …``: the command line. It starts the other roles as processes and imports none of them."""
