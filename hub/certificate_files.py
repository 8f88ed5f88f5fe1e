"""The certificates of a hub's ports: read from their files, and again when these change.

One ``CertificateFiles`` serves both ports. Each asks for ``current`` at every handshake, so that new
connections see new certificates while open ones go on. What cannot be used (a half-written file, a
certificate beside another's key) changes nothing: the last good ones stay in use, the log says so once, and
it is tried again.
"""

import os
import ssl
import stat
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from hub.core.certificate_life import CertificateLife, life_of_certificate
from hub.core.errors import StartRefused

log = structlog.get_logger(__name__)

FILE_BYTES_MAX: Final = 1024 * 1024
"""Largest file that is read; a chain has some KiB."""
FIRST_READS_MAX: Final = 3
"""How often files that change while a hub starts are read before that is told."""
HTTP_PROTOCOL: Final = "http/1.1"

_PEM_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_PEM_END: Final = b"-----END CERTIFICATE-----"
_KEYS_OF_GRPC: Final = tuple(
    bytes.fromhex(identifier)
    # RSA, and ECDSA on P-256 and P-384, as a certificate names the kind of its key.
    for identifier in ("06092a864886f70d010101", "06082a8648ce3d030107", "06052b81040022")
)
"""With any other key (Ed25519, P-521, RSA-PSS) gRPC takes no connection, or refuses to start."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the certificates are, in PEM.

    ``certificate`` is the hub's chain, its own first. ``client_ca`` holds the authorities of client
    certificates, one behind the other; None where no client certificates are asked for.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def all(self) -> tuple[Path, ...]:
        """Return the files that are read."""
        return tuple(file for file in (self.certificate, self.key, self.client_ca) if file is not None)


@dataclass(frozen=True, slots=True)
class Certificates:
    """What the files held at a moment, checked: chain and key belong together.

    ``life`` is that of the hub's own certificate. ``http_context`` is the same for the HTTP port, which asks
    nobody for a certificate.
    """

    chain: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None
    life: CertificateLife
    http_context: ssl.SSLContext = field(compare=False)


@dataclass(eq=False)
class CertificateUnusable(StartRefused):
    """Certificates cannot be used: without them no hub starts, and a running one keeps those it has."""

    file: Path


_Seen: TypeAlias = tuple[tuple[int, int, int], ...]
"""Of each file the time of its last change, its size and its inode: another one means other contents."""


class CertificateFiles:
    """The certificates as their files say now. ``current`` may be read from any thread."""

    def __init__(self, files: TlsFiles, *, wall_seconds: Callable[[], float] = time.time) -> None:
        """Read the files. ``wall_seconds`` gives the Unix time. Raises: CertificateUnusable."""
        self._files = files
        self._wall_seconds = wall_seconds
        self._fault = ""
        self._last_word_of_end = ""
        self._current, self._seen = _read_settled(files)
        self._tell_what_was_read()
        self._warn_of_end()

    @property
    def current(self) -> Certificates:
        """The newest good certificates."""
        return self._current

    @property
    def are_clients_asked(self) -> bool:
        """Whether the gRPC port wants a certificate of every client."""
        return self._files.client_ca is not None

    def left_seconds(self) -> float:
        """Return how long the hub's certificate still counts; below 0 where it is over."""
        return self._current.life.end_seconds - self._wall_seconds()

    async def watch(self, sleep: Callable[[float], Awaitable[None]], *, interval_seconds: float) -> None:
        """Look at the files for ever, once an interval."""
        while True:
            await sleep(interval_seconds)
            self.look()

    def look(self) -> None:
        """Read the files where they have changed or could not be used. Never fails.

        It takes some microseconds where nothing changed, else about a millisecond.
        """
        try:
            if self._fault or _look(self._files) != self._seen:
                self._current, self._seen = _read(self._files)
                self._fault = ""
                self._tell_what_was_read()
        except CertificateUnusable as unusable:
            if unusable.sentence != self._fault:
                log.warning("certificates_not_read", file=str(unusable.file), fault=unusable.sentence)
            self._fault = unusable.sentence
        self._warn_of_end()

    def http_context(self) -> ssl.SSLContext:
        """Return what the HTTP port listens with: each connection is with the certificates of its moment."""
        context = _MomentaryContext(ssl.PROTOCOL_TLS_SERVER)
        context.files = self
        return context

    def _tell_what_was_read(self) -> None:
        """Say what is in use from now on, and so where anybody on the machine can read the key."""
        end = datetime.fromtimestamp(self._current.life.end_seconds, UTC).isoformat()
        log.info("certificates_read", files=[str(file) for file in self._files.all()], end_time=end)
        self._last_word_of_end = ""
        with suppress(OSError):  # it was there a moment ago; where it is gone, the next look says so
            if os.stat(self._files.key).st_mode & stat.S_IROTH:
                log.warning("tls_key_readable_by_others", file=str(self._files.key))

    def _warn_of_end(self) -> None:
        """Say once of each certificate that it ends soon, and once that it is over."""
        life, now_seconds = self._current.life, self._wall_seconds()
        if not life.ends_soon(now_seconds):
            return
        word = "certificate_is_over" if life.is_over(now_seconds) else "certificate_ends_soon"
        if word != self._last_word_of_end:
            log.warning(word, file=str(self._files.certificate), left_seconds=round(self.left_seconds()))
        self._last_word_of_end = word


class _MomentaryContext(ssl.SSLContext):
    """Begins each connection with the certificates that are current then.

    A callback at the handshake (``sni_callback``) would be the documented way; but it shows every name that
    is not ASCII as a fault of the program, and names are chosen by strangers.
    """

    files: CertificateFiles

    def wrap_bio(  # type: ignore[override]  # what follows is named by event loops
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        *,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begin a connection; an event loop calls this for each."""
        return self.files.current.http_context.wrap_bio(
            incoming, outgoing, server_side=server_side, server_hostname=server_hostname, session=session
        )


def _read_settled(files: TlsFiles) -> tuple[Certificates, _Seen]:
    """Read files that somebody may be writing just now. Raises: CertificateUnusable."""
    for _ in range(FIRST_READS_MAX - 1):
        try:
            return _read(files)
        except CertificateUnusable:
            continue
    return _read(files)


def _read(files: TlsFiles) -> tuple[Certificates, _Seen]:
    """Read and check everything. Raises: CertificateUnusable."""
    seen = _look(files)
    chain, key = _read_file(files.certificate), _read_file(files.key)
    client_ca = None if files.client_ca is None else _read_file(files.client_ca)
    if b"ENCRYPTED" in key:
        raise CertificateUnusable(
            f"the key file {files.key} has a passphrase.",
            "Give a key without one, readable by the hub alone.",
            files.key,
        )
    context = _http_context(files)
    life = _checked_life(files.certificate, chain)
    if files.client_ca is not None:
        _check_authorities(files.client_ca)
    if _look(files) != seen:
        # What was checked need not be what was read.
        sentence = f"{files.certificate} or a file beside it is being written."
        raise CertificateUnusable(sentence, "Start again when it is complete.", files.certificate)
    return Certificates(chain, key, client_ca, life, context), seen


def _look(files: TlsFiles) -> _Seen:
    """Return what tells whether a file has changed. Raises: CertificateUnusable."""
    seen: list[tuple[int, int, int]] = []
    for file in files.all():
        try:
            found = os.stat(file)
        except (OSError, ValueError) as error:
            raise _unreadable(file, error) from error
        seen.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(seen)


def _read_file(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            contents = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(file, error) from error
    if not contents.strip() or len(contents) > FILE_BYTES_MAX:
        problem = "is empty" if len(contents) <= FILE_BYTES_MAX else f"is larger than {FILE_BYTES_MAX} bytes"
        raise CertificateUnusable(f"the file {file} {problem}.", "It has to hold PEM.", file)
    return contents


def _unreadable(file: Path, error: OSError | ValueError) -> CertificateUnusable:
    why = error.strerror if isinstance(error, OSError) else "that is no name of a file"
    return CertificateUnusable(
        f"the file {file} cannot be read: {why}.", "See --tls-cert and --tls-key.", file
    )


def _http_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the chain and the key for HTTP. Raises: CertificateUnusable where they are no pair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([HTTP_PROTOCOL])
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ValueError) as error:
        raise CertificateUnusable(
            f"{files.certificate} and {files.key} are not a certificate and its key in PEM.",
            "The certificate file holds the hub's own certificate first, then those that signed it.",
            files.certificate,
        ) from error
    return context


def _checked_life(file: Path, chain: bytes) -> CertificateLife:
    """Return the life of the first certificate of a chain, with which gRPC can serve.

    Raises: CertificateUnusable.
    """
    try:
        begin, end = chain.index(_PEM_BEGIN), chain.index(_PEM_END) + len(_PEM_END)
        certificate = ssl.PEM_cert_to_DER_cert(chain[begin:end].decode("ascii"))
        life = life_of_certificate(certificate)
    except ValueError as error:
        raise CertificateUnusable(f"the file {file} holds no plain certificate in PEM.", "", file) from error
    if not any(kind in certificate for kind in _KEYS_OF_GRPC):
        sentence = f"the certificate in {file} has a kind of key that gRPC does not take."
        raise CertificateUnusable(sentence, "Use ECDSA on P-256 or P-384, or RSA with 2048 bits.", file)
    return life


def _check_authorities(file: Path) -> None:
    """Return where a file holds authorities. Raises: CertificateUnusable."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=file)
    except (OSError, ValueError) as error:
        sentence = f"the file {file} holds no certificate in PEM."
        raise CertificateUnusable(sentence, "See --tls-client-ca.", file) from error
