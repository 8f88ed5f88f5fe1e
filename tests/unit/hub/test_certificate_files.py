"""The files of TLS: what is taken, what is refused by name, and when they are read again."""

import asyncio
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from structlog.testing import capture_logs
from structlog.typing import EventDict

from hub.certificate_files import FILE_BYTES_MAX, CertificateFiles, Certificates, CertificateUnusable
from tests.contract.tls import Authority, CertificateFolder, Issued, replace_file


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def folder(tmp_path: Path, authority: Authority) -> CertificateFolder:
    made = CertificateFolder(tmp_path)
    made.put(authority.server())
    return made


@pytest.fixture
def logged() -> Iterator[list[EventDict]]:
    with capture_logs() as entries:
        yield entries


def events(entries: Sequence[EventDict]) -> list[str]:
    return [entry["event"] for entry in entries]


def contents(certificates: Certificates) -> Issued:
    return Issued(certificates.chain, certificates.key)


def test_what_the_files_hold_is_current(folder: CertificateFolder, authority: Authority) -> None:
    folder.put_client_ca(authority)
    files = CertificateFiles(folder.files())
    assert files.are_clients_asked
    assert files.current.chain == folder.certificate.read_bytes()
    assert files.current.key == folder.key.read_bytes()
    assert files.current.client_ca == authority.pem


def test_a_new_pair_is_read_once_it_is_there(
    folder: CertificateFolder, authority: Authority, logged: list[EventDict]
) -> None:
    files = CertificateFiles(folder.files())
    logged.clear()
    first = files.current
    files.look()
    assert files.current is first
    issued = authority.server()
    folder.put(issued)
    files.look()
    assert contents(files.current) == issued
    assert files.current.http_context is not first.http_context
    assert events(logged) == ["certificates_read"]


def test_files_are_found_through_a_link_that_is_turned(
    tmp_path: Path, authority: Authority, logged: list[EventDict]
) -> None:
    """As a secret is mounted into a container: the folder is a link, and a renewal turns it."""
    versions = [CertificateFolder(tmp_path / str(number)) for number in (1, 2)]
    issued = [authority.server(), authority.server()]
    for version, each in zip(versions, issued, strict=True):
        version.folder.mkdir()
        version.put(each)
    link = tmp_path / "now"
    link.symlink_to(versions[0].folder)
    files = CertificateFiles(CertificateFolder(link).files())
    logged.clear()
    turned = tmp_path / "next"
    turned.symlink_to(versions[1].folder)
    turned.replace(link)
    files.look()
    assert contents(files.current) == issued[1]


@pytest.mark.parametrize("half", ["certificate", "key"])
def test_a_half_of_a_new_pair_changes_nothing_until_the_other_is_there(
    folder: CertificateFolder, authority: Authority, logged: list[EventDict], half: str
) -> None:
    files = CertificateFiles(folder.files())
    logged.clear()
    before, issued = files.current, authority.server()
    parts = {"certificate": (folder.certificate, issued.chain), "key": (folder.key, issued.key)}
    replace_file(*parts.pop(half))
    for _ in range(3):
        files.look()
    assert files.current is before
    assert events(logged) == ["certificates_not_read"]
    assert logged[0]["file"] == str(folder.certificate)
    for rest in parts.values():
        replace_file(*rest)
    files.look()
    assert contents(files.current) == issued
    assert events(logged) == ["certificates_not_read", "certificates_read"]


@pytest.mark.parametrize("damage", [b"", b"no PEM", b"-----BEGIN CERTIFICATE-----\nAAAA", None])
def test_what_is_no_certificate_or_gone_changes_nothing_and_is_tried_again(
    folder: CertificateFolder, authority: Authority, logged: list[EventDict], damage: bytes | None
) -> None:
    files = CertificateFiles(folder.files())
    logged.clear()
    before = files.current
    good = folder.certificate.read_bytes()
    if damage is None:
        folder.certificate.unlink()
    else:
        replace_file(folder.certificate, damage)
    files.look()
    files.look()
    assert files.current is before
    assert events(logged) == ["certificates_not_read"]
    assert str(folder.certificate) in logged[0]["fault"]
    replace_file(folder.certificate, good)
    files.look()
    assert files.current.chain == good
    assert events(logged)[1:] == ["certificates_read"]


def test_a_file_written_in_place_in_small_pieces_is_never_half_in_use(
    folder: CertificateFolder, authority: Authority, logged: list[EventDict]
) -> None:
    files = CertificateFiles(folder.files())
    logged.clear()
    before, issued = contents(files.current), authority.server()
    replace_file(folder.key, issued.key)
    with folder.certificate.open("wb", buffering=0) as opened:
        for index in range(0, len(issued.chain), 64):
            files.look()
            assert contents(files.current) == before
            opened.write(issued.chain[index : index + 64])
    files.look()
    assert contents(files.current) == issued


def test_new_authorities_of_clients_are_read(
    folder: CertificateFolder, authority: Authority, logged: list[EventDict]
) -> None:
    folder.put_client_ca(authority)
    files = CertificateFiles(folder.files())
    logged.clear()
    other = Authority("other")
    folder.put_client_ca(authority, other)
    files.look()
    assert files.current.client_ca == authority.pem + other.pem
    replace_file(folder.client_ca, b"none")
    files.look()
    assert files.current.client_ca == authority.pem + other.pem
    assert logged[-1]["file"] == str(folder.client_ca)


def encrypted(issued: Issued) -> bytes:
    return load_pem_private_key(issued.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


def test_a_start_is_refused_with_the_name_of_the_file(
    folder: CertificateFolder, authority: Authority, tmp_path: Path
) -> None:
    issued = authority.server()
    for file, bad, words in (
        (folder.key, b"", "is empty"),
        (folder.key, b"x" * (FILE_BYTES_MAX + 1), "is larger than"),
        (folder.key, authority.server().key, "are not a certificate and its key"),
        (folder.key, encrypted(issued), "has a passphrase"),
        (folder.certificate, b"x", "are not a certificate and its key"),
        (folder.client_ca, b"x", "holds no certificate"),
        (folder.client_ca, b"\n", "is empty"),
    ):
        folder.put(issued)
        folder.put_client_ca(authority)
        replace_file(file, bad)
        with pytest.raises(CertificateUnusable, match=words) as raised:
            CertificateFiles(folder.files())
        assert str(file) in str(raised.value)
    folder.put(issued)
    nowhere = tmp_path / "nowhere.pem"
    with pytest.raises(CertificateUnusable, match=r"nowhere\.pem cannot be read: No such file") as raised:
        CertificateFiles(replace(folder.files(), client_ca=nowhere))
    assert raised.value.file == nowhere


@pytest.mark.parametrize(
    ("curve", "is_taken"), [("SECP256R1", True), ("SECP384R1", True), ("SECP521R1", False)]
)
def test_a_kind_of_key_that_grpc_does_not_take_is_refused(
    tmp_path: Path, curve: str, *, is_taken: bool
) -> None:
    folder = CertificateFolder(tmp_path)
    folder.put(Authority().server(curve=curve))
    if is_taken:
        assert CertificateFiles(folder.files()).current.chain == folder.certificate.read_bytes()
    else:
        with pytest.raises(CertificateUnusable, match="a kind of key that gRPC does not take"):
            CertificateFiles(folder.files())


def test_a_key_that_others_can_read_is_warned_of_at_each_reading(
    folder: CertificateFolder, authority: Authority, logged: list[EventDict]
) -> None:
    files = CertificateFiles(folder.files())
    assert events(logged) == ["certificates_read"]
    logged.clear()
    folder.put(authority.server())
    folder.key.chmod(0o644)
    files.look()
    assert events(logged) == ["certificates_read", "tls_key_readable_by_others"]
    assert logged[1]["file"] == str(folder.key)
    folder.key.chmod(0o640)
    CertificateFiles(folder.files())
    assert events(logged)[2:] == ["certificates_read"]


async def test_the_watch_looks_once_an_interval(
    folder: CertificateFolder, authority: Authority, logged: list[EventDict]
) -> None:
    files = CertificateFiles(folder.files())
    logged.clear()
    issued = authority.server()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            assert contents(files.current) != issued
            folder.put(issued)
        if len(slept) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await files.watch(sleep, interval_seconds=7.0)
    assert slept == [7.0] * 3
    assert contents(files.current) == issued


def test_the_end_of_a_certificate_is_told_once_soon_before_and_once_after(
    folder: CertificateFolder, authority: Authority, logged: list[EventDict]
) -> None:
    now = time.time()
    hour = 3_600.0
    files = CertificateFiles(folder.files(), wall_seconds=lambda: now)
    assert 23 * hour < files.left_seconds() < 24 * hour
    logged.clear()
    told: list[tuple[float, list[str]]] = []
    for hours in (20, 23, 23.5, 25, 26):
        now = time.time() + hours * hour
        files.look()
        told.append((hours, events(logged)))
        logged.clear()
    assert told == [
        (20, []),
        (23, ["certificate_ends_soon"]),
        (23.5, []),
        (25, ["certificate_is_over"]),
        (26, []),
    ]
    assert files.left_seconds() < 0
    replace_file(folder.certificate, folder.certificate.read_bytes())
    files.look()
    assert events(logged) == ["certificates_read", "certificate_is_over"]


def test_a_hub_starts_with_a_certificate_that_is_over_and_says_so(
    folder: CertificateFolder, logged: list[EventDict]
) -> None:
    CertificateFiles(folder.files(), wall_seconds=lambda: time.time() + 10**6)
    assert events(logged) == ["certificates_read", "certificate_is_over"]
    assert logged[1]["file"] == str(folder.certificate)


def test_no_key_shows_in_a_representation(folder: CertificateFolder) -> None:
    shown = repr(CertificateFiles(folder.files()).current)
    assert "PRIVATE KEY" not in shown


def test_http_is_offered_with_a_current_protocol_only(folder: CertificateFolder) -> None:
    context = CertificateFiles(folder.files()).current.http_context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE
