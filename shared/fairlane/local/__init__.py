"""All of it on one machine: an embedded Redis and the roles as child processes, none of which outlives us."""
