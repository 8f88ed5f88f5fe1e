"""gRPC ignores an option that it does not know, in silence: each one that we set must be in its binary."""

import ast
import importlib.util
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def option_keys() -> set[str]:
    """The first of every pair that is written in our code and looks like an option of gRPC."""
    return {
        node.elts[0].value
        for folder in ("hub", "runtime_agent", "protos/synchub")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Tuple) and len(node.elts) == 2
        if isinstance(node.elts[0], ast.Constant) and isinstance(node.elts[0].value, str)
        if node.elts[0].value.startswith("grpc.")
    }


def keys_in_the_binary(keys: set[str]) -> set[str]:
    extension = importlib.util.find_spec("grpc._cython.cygrpc")
    assert extension is not None
    assert extension.origin is not None
    binary = Path(extension.origin).read_bytes()
    # With the zero byte that ends it, so that no key passes as the beginning of a longer one.
    return {key for key in keys if key.encode("ascii") + b"\0" in binary}


def test_every_option_that_we_set_is_one_that_grpc_knows() -> None:
    keys = option_keys()
    assert {"grpc.so_reuseport", "grpc.keepalive_time_ms", "grpc.max_receive_message_length"} <= keys
    assert keys - keys_in_the_binary(keys) == set()


def test_the_widely_copied_option_that_does_not_exist_would_be_found() -> None:
    copied = "grpc.http2.min_recv_ping_interval_without_data_ms"
    assert keys_in_the_binary({copied, "grpc.http2.min_ping_interval_without_data_ms"}) == {
        "grpc.http2.min_ping_interval_without_data_ms"
    }
