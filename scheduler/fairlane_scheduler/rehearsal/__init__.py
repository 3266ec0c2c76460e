"""The system in virtual time: an hour of a lane passes in seconds, and the same seed gives the same hour."""
