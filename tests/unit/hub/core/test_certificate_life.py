"""From when until when a certificate counts, against what a library of its own writes."""

import datetime
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from hub.core.certificate_life import CertificateLife, life_of_certificate

KEY: Final = ec.generate_private_key(ec.SECP256R1())
NAME: Final = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])
FIRST: Final = datetime.datetime(1950, 1, 1, tzinfo=datetime.UTC)
MOMENTS: Final = st.integers(0, int(datetime.timedelta(days=365 * 4_000).total_seconds()))


def certificate(begin: datetime.datetime, end: datetime.datetime, *, common_name: str = "x") -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    return (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .sign(KEY, hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )


@given(begin=MOMENTS, length=MOMENTS, common_name=st.text("ab", min_size=1, max_size=64))
def test_its_first_and_last_second_are_those_that_it_was_made_with(
    begin: int, length: int, common_name: str
) -> None:
    first = FIRST + datetime.timedelta(seconds=begin)
    last = first + datetime.timedelta(seconds=length)
    life = life_of_certificate(certificate(first, last, common_name=common_name))
    assert life == CertificateLife(int(first.timestamp()), int(last.timestamp()))


def test_what_is_cut_off_or_changed_is_refused_or_read_and_never_fails_otherwise() -> None:
    whole = certificate(FIRST, FIRST + datetime.timedelta(days=1))
    for length in range(len(whole)):
        with pytest.raises(ValueError, match="certificate"):
            life_of_certificate(whole[:length])
    for at in range(200):
        for bits in (0x01, 0x80, 0xFF):
            changed = bytearray(whole)
            changed[at] ^= bits
            try:
                life_of_certificate(bytes(changed))
            except ValueError:
                continue


@pytest.mark.parametrize(
    ("now", "ends_soon", "is_over"),
    [(0, False, False), (900, False, False), (901, True, False), (1_000, True, False), (1_001, True, True)],
)
def test_soon_is_the_last_tenth(now: int, *, ends_soon: bool, is_over: bool) -> None:
    life = CertificateLife(0, 1_000)
    assert (life.ends_soon(now), life.is_over(now)) == (ends_soon, is_over)
