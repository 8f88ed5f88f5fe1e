"""What hub and runtimes compute alike; a program in another language can check itself against these."""

from hashlib import sha256

import pytest

from synchub import contract


def test_the_content_hash_of_a_bare_line_is_the_published_vector() -> None:
    assert (
        contract.content_hash("line", None, is_final=False, attributes={}, payload=b"").hex()
        == "f8b69975834bd85957662c6bcfa57fb1e3c06e8d2137104a1921f50e091c2943"
    )


def test_the_content_hash_of_a_full_event_is_the_published_vector() -> None:
    assert (
        contract.content_hash(
            "step.done",
            1_700_000_000_123_456_789,
            is_final=True,
            attributes={"b": "2", "a": "é"},
            payload=b'{"ok":true}',
        ).hex()
        == "a2c48beca902d6a1e895ff46ba96eed442b1b2de2632773343a6d725e3b68451"
    )


def test_the_chain_hash_at_the_start_is_the_published_vector() -> None:
    assert (
        contract.chain_hash_at_start("p", "r").hex()
        == "645578314acd88a5f67ff7af44ee379e9cb5639d7bd6311e82649b0a057c1646"
    )


def test_the_chain_hash_goes_on_event_by_event() -> None:
    start = contract.chain_hash_at_start("p", "r")
    first, second = sha256(b"1").digest(), sha256(b"2").digest()
    after_first = sha256(start + first).digest()
    assert contract.chain_hash_after(start, []) == start
    assert contract.chain_hash_after(start, [first]) == after_first
    assert contract.chain_hash_after(start, [first, second]) == sha256(after_first + second).digest()


def test_project_and_run_cannot_be_shifted_into_each_other() -> None:
    assert contract.chain_hash_at_start("ab", "c") != contract.chain_hash_at_start("a", "bc")


def test_every_part_of_an_event_is_in_its_content_hash() -> None:
    hashes = {
        contract.content_hash("t", None, is_final=False, attributes={}, payload=b"x"),
        contract.content_hash("u", None, is_final=False, attributes={}, payload=b"x"),
        contract.content_hash("t", 0, is_final=False, attributes={}, payload=b"x"),
        contract.content_hash("t", -1, is_final=False, attributes={}, payload=b"x"),
        contract.content_hash("t", None, is_final=True, attributes={}, payload=b"x"),
        contract.content_hash("t", None, is_final=False, attributes={"a": ""}, payload=b"x"),
        contract.content_hash("t", None, is_final=False, attributes={"": "a"}, payload=b"x"),
        contract.content_hash("t", None, is_final=False, attributes={}, payload=b""),
    }
    assert len(hashes) == 8


def test_attributes_are_hashed_in_the_order_of_their_bytes() -> None:
    """UTF-16 order would put U+FF5E behind U+1D306; UTF-8 order does not."""
    pairs = {"\U0001d306": "1", "～": "2"}
    reversed_pairs = dict(reversed(pairs.items()))
    one, other = (
        contract.content_hash("t", None, is_final=False, attributes=each, payload=b"")
        for each in (pairs, reversed_pairs)
    )
    parts = [b"t", b"", b"\0", "～".encode(), b"2", "\U0001d306".encode(), b"1", b""]
    assert one == other == sha256(b"".join(map(contract.length_prefixed, parts))).digest()


@pytest.mark.parametrize(
    "value",
    ["a", "a b", "é", "e\u0301", "A" * 256, "é" * 128, "\U0001f600", "a\u00a0b", "\ufeff", "\u200b", "a/b"],
)
def test_an_identifier_may_be_any_visible_text_of_up_to_256_bytes(value: str) -> None:
    assert contract.identifier_fault(value) is None


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "is empty; 1 to 256 bytes are needed"),
        ("a" * 257, "has 257 bytes; at most 256 are allowed"),
        ("é" * 129, "has 258 bytes; at most 256 are allowed"),
        ("a\0b", "has the control code point U+0000, which is not allowed"),
        ("a\nb", "has the control code point U+000A, which is not allowed"),
        ("a\x7f", "has the control code point U+007F, which is not allowed"),
        ("a\x85b", "has the control code point U+0085, which is not allowed"),
        ("é\u2028é", "has the control code point U+2028, which is not allowed"),
        (" a", "begins or ends with white space, which is not allowed"),
        ("a ", "begins or ends with white space, which is not allowed"),
        ("\u3000a", "begins or ends with white space, which is not allowed"),
        ("a\ud800", "has a lone surrogate, which is not UTF-8"),
    ],
)
def test_what_is_no_identifier_is_told_why(value: str, fault: str) -> None:
    assert contract.identifier_fault(value) == fault


def test_attributes_at_their_bounds_are_allowed() -> None:
    assert contract.attributes_fault({}) is None
    assert contract.attributes_fault({f"{n:02}": "" for n in range(16)}) is None
    assert contract.attributes_fault({"k" * 128: "v" * (4096 - 128)}) is None


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ({str(n): "" for n in range(17)}, "has 17 pairs; at most attribute_count_max = 16 are allowed"),
        ({"": "x"}, "has a key of 0 bytes; 1 to attribute_key_bytes_max = 128 are allowed"),
        ({"é" * 65: "x"}, "has a key of 130 bytes; 1 to attribute_key_bytes_max = 128 are allowed"),
        (
            {"k": "v" * 4096},
            "has 4097 bytes of keys and values; at most attributes_bytes_max = 4096 are allowed",
        ),
        ({"k": "a\0"}, "has U+0000, which is allowed in payloads only"),
        ({"k": "\udfff"}, "has a lone surrogate, which is not UTF-8"),
    ],
)
def test_attributes_beyond_their_bounds_are_told_why(attributes: dict[str, str], fault: str) -> None:
    assert contract.attributes_fault(attributes) == fault
