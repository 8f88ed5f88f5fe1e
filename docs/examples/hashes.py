"""Content and chain hashes in nothing but the standard library: the text to translate.

Prints the hashes of docs/wire.md. Run it: ``python docs/examples/hashes.py``
"""

import hashlib


def part(value: bytes) -> bytes:
    """Return a part as it is hashed: behind its length as 4 bytes, big-endian."""
    return len(value).to_bytes(4, "big") + value


def content_hash(
    event_type: str, nanos: int | None, *, is_final: bool, attributes: dict[str, str], payload: bytes
) -> bytes:
    """Return the content hash of an event, 32 bytes; ``nanos`` is its time since 1970, or None."""
    digest = hashlib.sha256()
    digest.update(part(event_type.encode()))
    digest.update(part(b"" if nanos is None else nanos.to_bytes(8, "big", signed=True)))
    digest.update(part(b"\x01" if is_final else b"\x00"))
    for key, value in sorted((key.encode(), value.encode()) for key, value in attributes.items()):
        digest.update(part(key))
        digest.update(part(value))
    digest.update(part(payload))
    return digest.digest()


def chain_hash_at_start(project_id: str, run_id: str) -> bytes:
    """Return the chain hash of a run before its first event, 32 bytes."""
    return hashlib.sha256(part(project_id.encode()) + part(run_id.encode())).digest()


def chain_hash_after(chain_hash: bytes, next_content_hash: bytes) -> bytes:
    """Return the chain hash after one more event, 32 bytes."""
    return hashlib.sha256(chain_hash + next_content_hash).digest()


def main() -> None:
    """Print the vectors."""
    line = content_hash("line", None, is_final=False, attributes={}, payload=b"")
    done = content_hash(
        "step.done",
        1_700_000_000_123_456_789,
        is_final=True,
        attributes={"b": "2", "a": "é"},
        payload=b'{"ok":true}',
    )
    start = chain_hash_at_start("p", "r")
    after_line = chain_hash_after(start, line)
    print("content hash of line          ", line.hex())
    print("content hash of step.done     ", done.hex())
    print("chain hash before the first   ", start.hex())
    print("chain hash after line         ", after_line.hex())
    print("chain hash after step.done    ", chain_hash_after(after_line, done).hex())


if __name__ == "__main__":
    main()
