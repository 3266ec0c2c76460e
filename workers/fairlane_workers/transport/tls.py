"""Builds the TLS context of a connection: the authorities it trusts, the certificate it presents."""

import ssl
from contextlib import suppress
from pathlib import Path

import httpx

from fairlane.config.environment import process_environment
from fairlane_workers.transport.faults import UnusableSettingError

CA_FILE, CA_FOLDER = "SSL_CERT_FILE", "SSL_CERT_DIR"
"""Variables of the environment that OpenSSL's programs and httpx read."""

UNSET = "Name authorities in PEM that the workers can read, or unset"


class Certificates:
    """The TLS context of a connection with files of its own. What they hold may change while it is used."""

    def __init__(self, ca_file: Path | None, client_certificate: Path | None) -> None:
        """Reads the files, see `tls_context`."""
        self._files = (ca_file, client_certificate)
        self._stamps = self._seen()
        self.context = tls_context(*self._files)

    def renew(self) -> None:
        """Read files that have changed, for connections to come. One that cannot be used changes nothing."""
        stamps = self._seen()
        if stamps != self._stamps:
            with suppress(UnusableSettingError):
                tls_context(*self._files)
                for use, file in zip((_trust, _show), self._files, strict=True):
                    if file is not None:
                        use(self.context, file)
            self._stamps = stamps

    def _seen(self) -> list[tuple[int, ...] | None]:
        return [None if file is None else _stamp(file) for file in self._files]


def _stamp(file: Path) -> tuple[int, ...] | None:
    with suppress(OSError):
        seen = file.stat()
        return seen.st_mtime_ns, seen.st_size, seen.st_ino
    return None


def tls_context(ca_file: Path | None = None, client_certificate: Path | None = None) -> ssl.SSLContext:
    """A context that verifies certificates and host names against certifi or ``SSL_CERT_FILE`` or
    ``SSL_CERT_DIR``.

    It also trusts the authorities in ``ca_file``. ``client_certificate`` is one PEM file with the
    certificate, the chain below it and the private key, not encrypted. Raises `UnusableSettingError` for a
    file that cannot be used.
    """
    context = _verifying()
    if ca_file is not None:
        _trust(context, ca_file)
    if client_certificate is not None:
        _show(context, client_certificate)
    return context


def _verifying() -> ssl.SSLContext:
    """A context that trusts what the environment says, else certifi's authorities."""
    file, folder = (process_environment().get(variable) for variable in (CA_FILE, CA_FOLDER))
    if folder and not file and not Path(folder).is_dir():
        raise UnusableSettingError(CA_FOLDER, folder, "is no directory", f"{UNSET} {CA_FOLDER}.")
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        is_read = isinstance(error, ssl.SSLError)
        problem = "holds no certificate in PEM" if is_read else f"cannot be read: {error.strerror or error}"
        raise UnusableSettingError(CA_FILE, str(file), problem, f"{UNSET} {CA_FILE}.") from error


def _trust(context: ssl.SSLContext, file: Path) -> None:
    try:
        context.load_verify_locations(cafile=file)
    except ssl.SSLError as error:
        remedy = "Name a file with one or more certificates of authorities in PEM."
        raise UnusableSettingError("ca_file", str(file), "holds no certificate in PEM", remedy) from error
    except OSError as error:
        raise _unreadable("ca_file", file, error) from error


def _show(context: ssl.SSLContext, file: Path) -> None:
    try:
        context.load_cert_chain(file, password=lambda: "")  # without this, OpenSSL prompts at the terminal
    except ssl.SSLError as error:
        problem = "holds no certificate with its private key in PEM, or the key is encrypted"
        remedy = "Put the certificate, its chain and its private key, not encrypted, into that file."
        raise UnusableSettingError("client_certificate", str(file), problem, remedy) from error
    except OSError as error:
        raise _unreadable("client_certificate", file, error) from error


def _unreadable(field: str, file: Path, error: OSError) -> UnusableSettingError:
    remedy = "Name a file that the workers can read."
    return UnusableSettingError(field, str(file), f"cannot be read: {error.strerror or error}", remedy)
