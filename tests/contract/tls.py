"""Authorities and certificates for tests, the files of a hub's own, and channels that trust and show them."""

import datetime
import ipaddress
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hub.certificate_files import TlsFiles
from hub.config import HubSettings

TRUST_DOMAIN: Final = "example.org"
SERVER_NAMES: Final = ("localhost", "127.0.0.1", "::1")
CURVES: Final[Mapping[str, type[ec.EllipticCurve]]] = {
    curve.__name__: curve for curve in (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
}
LIFE: Final = datetime.timedelta(days=1)


def spiffe(hub_project: str, runtime_id: str, *, trust_domain: str = TRUST_DOMAIN) -> str:
    """The URI name of a runtime's certificate."""
    return f"spiffe://{trust_domain}/hub-project/{hub_project}/runtime/{runtime_id}"


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, in PEM."""

    chain: bytes
    key: bytes = field(repr=False)


class Authority:
    """Signs certificates for servers and clients."""

    def __init__(self, name: str = "tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority {name}")])
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        unsigned = (
            self._begun(self._name, self._key.public_key(), age=datetime.timedelta())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(identifier, critical=False)
        )
        self.pem = unsigned.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        """What trusts this authority reads this."""

    def server(self, *names: str, curve: str = "SECP256R1") -> Issued:
        """A hub's certificate, for loopback where no name is given."""
        return self._issue([_host(name) for name in names or SERVER_NAMES], curve=CURVES[curve])

    def client(self, *uris: str, age: datetime.timedelta | None = None) -> Issued:
        """A client's certificate with these URI names; one older than a day is over."""
        return self._issue([x509.UniformResourceIdentifier(uri) for uri in uris], age=age)

    def _issue(
        self,
        names: Sequence[x509.GeneralName],
        *,
        age: datetime.timedelta | None = None,
        curve: type[ec.EllipticCurve] = ec.SECP256R1,
    ) -> Issued:
        key = ec.generate_private_key(curve())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issued by tests")])
        unsigned = self._begun(subject, key.public_key(), age=age or datetime.timedelta())
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        unsigned = unsigned.add_extension(identifier, critical=False)
        if names:
            unsigned = unsigned.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = unsigned.sign(self._key, hashes.SHA256())
        return Issued(
            signed.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )

    def _begun(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey, *, age: datetime.timedelta
    ) -> x509.CertificateBuilder:
        begin = datetime.datetime.now(datetime.UTC) - age - datetime.timedelta(minutes=5)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + LIFE)
        )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True, slots=True)
class CertificateFolder:
    """The files of a hub's TLS, each replaced as a whole, as a renewal does it."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "hub.pem"

    @property
    def key(self) -> Path:
        return self.folder / "hub.key"

    @property
    def client_ca(self) -> Path:
        return self.folder / "clients.pem"

    def put(self, issued: Issued) -> None:
        replace_file(self.certificate, issued.chain)
        replace_file(self.key, issued.key)

    def put_client_ca(self, *authorities: Authority) -> None:
        replace_file(self.client_ca, b"".join(authority.pem for authority in authorities))

    def files(self) -> TlsFiles:
        """What is there."""
        return TlsFiles(self.certificate, self.key, self.client_ca if self.client_ca.exists() else None)


def replace_file(file: Path, contents: bytes) -> None:
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_bytes(contents)
    new.replace(file)


def client_hello() -> bytes:
    """The first words of a client's handshake; it asks for ``localhost``."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def with_tls(settings: HubSettings, certificates: CertificateFolder) -> HubSettings:
    """Settings with TLS; client certificates are asked for where their authorities are there."""
    files = certificates.files()
    return replace(settings, tls=files, trust_domain=None if files.client_ca is None else TRUST_DOMAIN)


@contextmanager
def trusting(
    address: str, authority: Authority, *, shown: Issued | None = None, name: str | None = None
) -> Iterator[grpc.Channel]:
    """A channel that trusts an authority, and shows a certificate; ``name`` is whom it expects."""
    credentials = grpc.ssl_channel_credentials(
        authority.pem, None if shown is None else shown.key, None if shown is None else shown.chain
    )
    # Each connects for itself: else a channel could go on with another one's connection.
    options: list[tuple[str, str | int]] = [("grpc.use_local_subchannel_pool", 1)]
    if name is not None:
        options.append(("grpc.ssl_target_name_override", name))
    with grpc.secure_channel(address, credentials, options=options) as channel:
        yield channel
