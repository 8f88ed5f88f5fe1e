"""What a client shows to a hub and whom it trusts: a token, certificates, and the files that hold them.

``Credentials`` is the value that flags and programs make; ``CredentialSource`` holds what its files say now.
It looks at them again, at most once a second, so that a token or a certificate that is replaced on disk is
used without a restart. A file that vanished or is half written is no reason to stop: the last good contents
stay in use, and the next look tries again. Secrets are never part of what is printed or raised.
"""

import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import grpc

TOKEN_BYTES_MAX: Final = 4 * 1024
"""Largest token: it travels with every call, where about 8 KiB have room."""
TLS_FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Largest file of certificates; a system's bundle of roots has a quarter of a MiB."""
LOOK_SECONDS: Final = 1.0
"""The files are looked at no more often than this."""
_FIRST_READS_MAX: Final = 3
"""How often files that change while they are read are read, before that is told."""


class CredentialsError(ValueError):
    """Credentials cannot be used; its text is a sentence for people that names the file, never a secret."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client shows and trusts; nothing of it: plain text, and no token.

    - ``token``, or ``token_file`` whose only line it is: sent with each call.
    - ``ca_file``: the authorities, in PEM, by one of which the hub's certificate has to be signed; the
      system's where none is named.
    - ``certificate_file``, ``key_file``: this client's own certificate chain and its key, in PEM, both or
      neither.
    - ``is_tls``: speak TLS although no file is named. Each of the files means TLS too.

    Raises: CredentialsError, for what can be known without reading a file.
    """

    token: str = field(default="", repr=False)
    token_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    is_tls: bool = False

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.token:
            if self.token_file:
                raise CredentialsError("a token and a token file are given; one of them is enough")
            _refuse_odd_token(self.token, "the token")
        if self.key_file and not self.certificate_file:
            raise CredentialsError(f"the key file {self.key_file} is given without a certificate file")
        if self.certificate_file and not self.key_file:
            raise CredentialsError(
                f"the certificate file {self.certificate_file} is given without a key file"
            )

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is TLS."""
        return self.is_tls or bool(self.ca_file or self.certificate_file)

    @property
    def identifies(self) -> bool:
        """Whether a hub can tell by them who calls."""
        return bool(self.token or self.token_file or self.certificate_file)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read."""
        named = (self.token_file, self.ca_file, self.certificate_file, self.key_file)
        return tuple(file for file in named if file)


NO_CREDENTIALS: Final = Credentials()
"""Plain text and no token: what a hub on loopback takes."""


@dataclass(frozen=True, slots=True)
class TlsContents:
    """What TLS needs, as PEM; each may be missing."""

    ca: bytes | None = field(repr=False)
    certificate: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return them as gRPC takes them."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


@dataclass(frozen=True, slots=True)
class CredentialContents:
    """What is shown and trusted at a moment: the token ("" for none) and TLS (None for plain text)."""

    token: str = field(repr=False)
    tls: TlsContents | None


class CredentialSource:
    """The contents of credentials as they are now. Safe to share among threads, channels and clients."""

    def __init__(self, credentials: Credentials, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the files. ``clock``: seconds that only rise. Raises: CredentialsError."""
        self.credentials = credentials
        self._clock = clock
        self._lock = threading.Lock()
        self._fault = ""
        self._contents, self._seen = _read_settled(credentials)
        self._next_look = clock() + LOOK_SECONDS

    @property
    def fault(self) -> str:
        """Why the newest contents of the files cannot be used, as a sentence; "" where they are in use."""
        return self._fault

    def current(self) -> CredentialContents:
        """Return what to show now; looks at the files where the last look is a second ago. Never fails."""
        if self._clock() < self._next_look or not self.credentials.files:
            return self._contents
        return self.refreshed()

    def refreshed(self) -> CredentialContents:
        """Look at the files now, and return what to show. Never fails."""
        with self._lock:
            self._next_look = self._clock() + LOOK_SECONDS
            try:
                if self._fault or _look(self.credentials) != self._seen:
                    read, self._seen = _read(self.credentials)
                    self._contents = _kept_where_equal(read, self._contents)
                    self._fault = ""
            except CredentialsError as error:
                self._fault = str(error)
            return self._contents


CredentialsGiven: TypeAlias = Credentials | CredentialSource
"""Credentials to be read, or a source that others use too."""


def source_of(credentials: CredentialsGiven) -> CredentialSource:
    """Return where the contents come from; the files are looked at now. Raises: CredentialsError."""
    if isinstance(credentials, CredentialSource):
        credentials.refreshed()
        return credentials
    return CredentialSource(credentials)


# --- reading ----------------------------------------------------------------------------------------

_Seen: TypeAlias = tuple[tuple[int, int, int], ...]
"""Of each file the time of its last change, its size and its inode: another one means other contents."""


def _read_settled(credentials: Credentials) -> tuple[CredentialContents, _Seen]:
    for _ in range(_FIRST_READS_MAX - 1):
        try:
            return _read(credentials)
        except _ChangingError:
            continue
    return _read(credentials)


class _ChangingError(CredentialsError):
    """A file changed while it was read."""


def _read(credentials: Credentials) -> tuple[CredentialContents, _Seen]:
    """Read and check everything. Raises: CredentialsError."""
    seen = _look(credentials)
    token = _read_token(credentials.token_file) if credentials.token_file else credentials.token
    tls = _read_tls(credentials) if credentials.uses_tls else None
    if _look(credentials) != seen:
        # What was checked need not be what was read.
        raise _ChangingError(f"{' or '.join(credentials.files)} is being written")
    return CredentialContents(token, tls), seen


def _kept_where_equal(read: CredentialContents, known: CredentialContents) -> CredentialContents:
    """Return what was read, with the known TLS contents where nothing of them changed."""
    return CredentialContents(read.token, known.tls) if read.tls == known.tls else read


def _look(credentials: Credentials) -> _Seen:
    seen: list[tuple[int, int, int]] = []
    for file in credentials.files:
        try:
            found = os.stat(file)
        except (OSError, ValueError) as error:
            raise CredentialsError(f"the file {file} cannot be read: {_why(error)}") from error
        seen.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(seen)


def _why(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "that is no name of a file"


def _read_file(file: str, *, bytes_max: int) -> bytes:
    try:
        with open(file, "rb") as opened:
            contents = opened.read(bytes_max + 1)
    except OSError as error:
        raise CredentialsError(f"the file {file} cannot be read: {_why(error)}") from error
    if not contents.strip():
        raise CredentialsError(f"the file {file} is empty")
    if len(contents) > bytes_max:
        raise CredentialsError(f"the file {file} is larger than {bytes_max} bytes")
    return contents


def _read_token(file: str) -> str:
    contents = _read_file(file, bytes_max=TOKEN_BYTES_MAX)
    token = contents.strip().decode("ascii", errors="replace")
    _refuse_odd_token(token, f"the token in the file {file}")
    return token


def _refuse_odd_token(token: str, what: str) -> None:
    if len(token) > TOKEN_BYTES_MAX:
        raise CredentialsError(f"{what} is larger than {TOKEN_BYTES_MAX} bytes")
    if any(character.isspace() for character in token):
        raise CredentialsError(f"{what} has white space in it; a token is one word")
    if not (token.isascii() and token.isprintable()):
        raise CredentialsError(f"{what} is not ASCII; that is no token")


def _read_tls(credentials: Credentials) -> TlsContents:
    """Read the certificates, and let OpenSSL check them: gRPC tells of a bad one only as "handshake"."""
    ca_file, certificate_file, key_file = (
        credentials.ca_file,
        credentials.certificate_file,
        credentials.key_file,
    )
    contents = TlsContents(
        *(
            _read_file(file, bytes_max=TLS_FILE_BYTES_MAX) if file else None
            for file in (ca_file, certificate_file, key_file)
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca_file:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ValueError) as error:
            raise CredentialsError(f"the CA file {ca_file} holds no certificate in PEM") from error
    if certificate_file:
        if contents.key is not None and b"ENCRYPTED" in contents.key:
            raise CredentialsError(f"the key file {key_file} has a passphrase; a key without one is needed")
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate_file, key_file, password="")
        except (OSError, ValueError) as error:
            raise CredentialsError(
                f"the certificate file {certificate_file} and the key file {key_file}"
                " are not a certificate and its key in PEM"
            ) from error
    return contents
