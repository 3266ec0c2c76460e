"""Checks the URLs of Redis and of brokers when settings are read.

redis-py and kombu pass any option on to their connections, which fail later and in their own words.
"""

from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

from fairlane.config.topology import ENCODED, port_of, split_url, topology_of

_REDIS = ("redis", "rediss")
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_SENTINELS = ("sentinel_username", "sentinel_password")


def checked_redis(url: str) -> str:
    """The URL of a Redis, with its database where both redis-py and kombu look for it.

    Raises ``ValueError``, whose text has nothing of the URL's user and password.
    """
    parts = _split(url)
    scheme = parts.scheme.partition("+")[0]
    if scheme == "unix":
        return _checked_socket(url, parts)
    topology = topology_of(url)
    sentinels = _SENTINELS if topology is not None and topology.service is not None else ()
    database = () if topology is not None else ("db",)
    options = _options(parts, (*sentinels, *database, *(_TLS if scheme == "rediss" else ())))
    if topology is not None:
        return url
    if not parts.hostname:
        raise ValueError(f"it names no host; {ENCODED}")
    port_of(parts)
    named = {parts.path.strip("/"), options.pop("db", "")} - {""}
    if len(named) > 1 or not all(each.isdecimal() for each in named):
        raise ValueError(f"a database is one number: redis://host:6379/0; {ENCODED}")
    return urlunsplit(parts._replace(path="".join(f"/{each}" for each in named), query=urlencode(options)))


def checked_broker(url: str) -> str:
    """The URL of a broker. Raises ``ValueError`` as `checked_redis` does, and for what Celery cannot use."""
    if url.startswith("sentinel://"):
        raise ValueError("name Sentinels and their service in one: redis+sentinel://host:26379,…/mymaster")
    scheme = url.partition("://")[0]
    if scheme == "unix" or (scheme.partition("+")[0] in _REDIS and scheme != "redis+socket"):
        url = checked_redis(url)
        topology = topology_of(url)
        if topology is not None and topology.service is None:
            raise ValueError("Celery's queues cannot be on a cluster: name one Redis, Sentinels or RabbitMQ")
        return url
    for node in url.split(";"):
        parts = _split(node)
        port_of(parts)
        _require_checks(dict(parse_qsl(parts.query)))
    return url


def _split(url: str) -> SplitResult:
    try:
        parts = split_url(url)
    except ValueError:
        raise ValueError(f"it is no URL; {ENCODED}") from None
    is_file = parts.scheme in ("unix", "redis+socket")
    cut = "@" in parts.path + parts.query and "@" not in parts.netloc and not is_file
    if cut or "#" in url:
        raise ValueError(f"its address ends before an @ or at a #; {ENCODED}")
    return parts


def _checked_socket(url: str, parts: SplitResult) -> str:
    options = _options(parts, ("db",))
    if not parts.path.strip("/"):
        raise ValueError("it names no socket: unix:///path/to/redis.sock?db=0")
    if not options.get("db", "0").isdecimal():
        raise ValueError("a database is a number: unix:///path/to/redis.sock?db=0")
    return url


def _options(parts: SplitResult, known: tuple[str, ...]) -> dict[str, str]:
    """What follows the ``?``. Raises ``ValueError`` for an option that is not ``known`` or named twice."""
    stated = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(stated)
    for name in options:
        if name not in known and "@" in parts.query:
            raise ValueError(f"what follows its ? is no option; {ENCODED}")
        if name not in known:
            there = f"there can be {', '.join(known)}" if known else "there can be none"
            raise ValueError(f"the option {name!r} cannot be set in this URL; {there}")
    if len(options) < len(stated):
        raise ValueError("an option is named twice")
    _require_checks(options)
    return options


def _require_checks(options: dict[str, str]) -> None:
    """Raise ``ValueError`` if options switch off the check of certificates."""
    reqs = options.get("ssl_cert_reqs", "required").lower()
    hostname = options.get("ssl_check_hostname", "true").lower()
    if reqs not in ("required", "cert_required") or hostname in ("0", "f", "false", "n", "no"):
        raise ValueError(
            "certificates are always checked: name the authority instead, ?ssl_ca_certs=/path/to/ca.pem"
        )
