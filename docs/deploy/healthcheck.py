"""Asks the hub of this container whether it is well: exit code 0 where it is, 1 where not, with what it says.

For a Containerfile's HEALTHCHECK; the standard library alone. It asks ``/healthz`` of the address in
``SYNCHUB_HTTP``, in plain text and, where the hub speaks TLS, by that. The certificate is not verified: the
hub asks itself, on loopback.
"""

import http.client
import os
import ssl
import sys

SECONDS_MAX = 6.0


def main() -> int:
    host, _, port = os.environ.get("SYNCHUB_HTTP", "127.0.0.1:7480").rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host).strip("[]")
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    problem: Exception | None = None
    for connection in (
        http.client.HTTPConnection(host, int(port), timeout=SECONDS_MAX / 2),
        http.client.HTTPSConnection(host, int(port), timeout=SECONDS_MAX / 2, context=unverified),
    ):
        try:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            print(answer.read().decode(errors="replace"))
            return 0 if answer.status == 200 else 1
        except (OSError, http.client.HTTPException) as error:
            problem = error
        finally:
            connection.close()
    print(f"no hub answers at {host}:{port}: {problem}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
