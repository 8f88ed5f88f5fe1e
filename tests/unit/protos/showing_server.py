"""A real gRPC server that answers with what a client showed it, and the files that a client has."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import grpc
import trustme

ASK: Final = "/test.Showing/Ask"
"""A unary call; the answer says the token, and the name in the client's certificate."""
HOLD: Final = "/test.Showing/Hold"
"""A stream that answers each request so, for as long as the client likes."""
COUNT: Final = "/test.Showing/Count"
"""Many requests, one answer."""
LIST: Final = "/test.Showing/List"
"""One request, two answers."""

Context = grpc.ServicerContext


def shown_to(context: Context) -> bytes:
    """Return what the client of a call showed: its token, and the first name of its certificate."""
    token = dict(context.invocation_metadata()).get("authorization", "-")
    names = context.auth_context().get("x509_subject_alternative_name", [b"-"])
    return f"{token!s} {cast(bytes, next(iter(names))).decode()}".encode()


@dataclass
class ShowingServer:
    """What a server counts: how many calls began."""

    port: int = 0
    call_count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, _: bytes, context: Context) -> bytes:
        with self.lock:
            self.call_count += 1
        return shown_to(context)

    def hold(self, requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
        for request in requests:
            yield request + b" " + shown_to(context)

    def count(self, requests: Iterator[bytes], context: Context) -> bytes:
        return b"%d " % len(list(requests)) + shown_to(context)

    def list(self, request: bytes, context: Context) -> Iterator[bytes]:
        yield request
        yield shown_to(context)

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        match details.method:
            case "/test.Showing/Ask":
                return grpc.unary_unary_rpc_method_handler(self.ask)
            case "/test.Showing/Hold":
                return grpc.stream_stream_rpc_method_handler(self.hold)
            case "/test.Showing/Count":
                return grpc.stream_unary_rpc_method_handler(self.count)
            case "/test.Showing/List":
                return grpc.unary_stream_rpc_method_handler(self.list)
        return None


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, server: ShowingServer) -> None:
        self.server = server

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        return self.server.service(handler_call_details)


@contextmanager
def serving(credentials: grpc.ServerCredentials | None = None) -> Iterator[ShowingServer]:
    """Listen on loopback, with TLS where there are credentials."""
    showing = ShowingServer()
    with ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads, handlers=[_Handler(showing)], options=[("grpc.so_reuseport", 0)])
        if credentials is None:
            showing.port = server.add_insecure_port("127.0.0.1:0")
        else:
            showing.port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        try:
            yield showing
        finally:
            server.stop(0).wait()


def server_credentials(
    authority: trustme.CA, *names: str, clients: trustme.CA | None = None
) -> grpc.ServerCredentials:
    """Return what a server with these names shows; with ``clients``, they must show a certificate of it."""
    issued = authority.issue_cert(*names)
    return grpc.ssl_server_credentials(
        [(issued.private_key_pem.bytes(), b"".join(each.bytes() for each in issued.cert_chain_pems))],
        root_certificates=clients.cert_pem.bytes() if clients else None,
        require_client_auth=clients is not None,
    )


@dataclass(frozen=True)
class ClientFiles:
    """The files of a client, each of which is replaced as a whole, as a renewal does it."""

    folder: Path

    @property
    def token(self) -> str:
        return str(self.folder / "token")

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def certificate(self) -> str:
        return str(self.folder / "client.pem")

    @property
    def key(self) -> str:
        return str(self.folder / "client.key")

    def put(self, file: str, contents: bytes) -> None:
        new = Path(f"{file}.new")
        new.write_bytes(contents)
        new.replace(file)

    def put_token(self, token: str) -> None:
        self.put(self.token, f"{token}\n".encode())

    def remove_token(self) -> None:
        Path(self.token).unlink()

    def put_ca(self, *authorities: trustme.CA) -> None:
        self.put(self.ca, b"".join(each.cert_pem.bytes() for each in authorities))

    def put_certificate(self, authority: trustme.CA, name: str) -> None:
        issued = authority.issue_cert(name)
        self.put(self.key, issued.private_key_pem.bytes())
        self.put(self.certificate, b"".join(each.bytes() for each in issued.cert_chain_pems))
