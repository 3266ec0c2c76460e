"""A trial of docker-compose.yml with a Docker engine: not part of the test suite, see ``__main__``."""
