"""Everything on one machine: an embedded Redis, the roles as child processes, and a promise that none outlives us."""
