"""The health check of a container asks a hub as shipped, in plain text and by TLS."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.contract.tls import Authority, CertificateFolder
from tests.integration.hub_process import SECONDS_MAX, HubProcess

HEALTHCHECK: Final = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "healthcheck.py"


def asked(address: str) -> tuple[int, str]:
    """The exit code and what it said."""
    ended = subprocess.run(
        [sys.executable, "-I", str(HEALTHCHECK)],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={**os.environ, "SYNCHUB_HTTP": address},
    )
    assert ended.stderr == ""
    return ended.returncode, ended.stdout


def test_it_says_that_a_hub_is_well_and_that_there_is_none(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "hub.db", more=["--http", "127.0.0.1:0"])
    code, said = asked(hub.http_address)
    hub.stop()
    assert (code, '"ok"' in said) == (0, True)
    code, said = asked(hub.http_address)
    assert (code, "no hub answers" in said) == (1, True)


def test_it_asks_by_tls_where_the_hub_speaks_that(tmp_path: Path) -> None:
    certificates = CertificateFolder(tmp_path)
    certificates.put(Authority().server())
    files = ["--tls-cert", str(certificates.certificate), "--tls-key", str(certificates.key)]
    hub = HubProcess(tmp_path / "hub.db", more=["--http", "127.0.0.1:0", *files])
    code, said = asked(hub.http_address)
    hub.stop()
    assert (code, '"ok"' in said) == (0, True)
