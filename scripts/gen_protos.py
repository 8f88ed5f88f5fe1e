"""Writes the Python code and the descriptor set that belong to ``protos/synchub/v1/*.proto``.

Beside each ``.proto`` file come ``_pb2.py`` and, where it has a service, ``_pb2_grpc.py``, each with
its type stub; for all of them together ``synchub.protoset``, a descriptor set that still has the
comments (server reflection drops them), for ``grpcurl -protoset`` and ``buf lint``. All of it is
committed, so that nobody needs a build step and a change of the wire shows in review.

    .venv/bin/python scripts/gen_protos.py            write them
    .venv/bin/python scripts/gen_protos.py --check    exit 1 and say which are stale, write nothing

The same sources and the pinned tools give the same bytes.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

PROTO_ROOT = Path(__file__).resolve().parent.parent / "protos"
PACKAGE = Path("synchub/v1")
DESCRIPTOR_SET = PACKAGE / "synchub.protoset"
PYTHON_SUFFIXES = ("_pb2.py", "_pb2.pyi")
SERVICE_SUFFIXES = ("_pb2_grpc.py", "_pb2_grpc.pyi")
PROTOC_SECONDS_MAX = 120


class GenerationFailed(Exception):
    """The compiler refused the sources or is not installed; the message is its own words."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate the code that belongs to the .proto files.")
    parser.add_argument("--check", action="store_true", help="compare with what is there, write nothing")
    check = bool(parser.parse_args().check)
    try:
        with tempfile.TemporaryDirectory(prefix="synchub-protos-") as folder:
            stale = apply_generated(generate(Path(folder)), write=not check)
    except GenerationFailed as failure:
        print(f"gen_protos: {failure}", file=sys.stderr)
        return 1
    if check and stale:
        print("not what the .proto files give; run scripts/gen_protos.py and commit:", file=sys.stderr)
    for path in stale:
        print(f"  {path}" if check else f"wrote {path}", file=sys.stderr if check else sys.stdout)
    return 1 if check and stale else 0


def apply_generated(fresh: dict[Path, bytes], *, write: bool) -> list[Path]:
    """Returns the paths under ``protos/`` that differ from ``fresh``, made equal to it if ``write`` is set.

    A generated file whose ``.proto`` is gone differs too, and is deleted.
    """
    there = {path.relative_to(PROTO_ROOT) for path in _generated_paths(PROTO_ROOT / PACKAGE)}
    stale: list[Path] = []
    for relative in sorted(there | fresh.keys()):
        path, content = PROTO_ROOT / relative, fresh.get(relative)
        if content == (path.read_bytes() if path.exists() else None):
            continue
        stale.append(relative)
        if write and content is None:
            path.unlink()
        elif write and content is not None:
            path.write_bytes(content)
    return stale


def generate(folder: Path) -> dict[Path, bytes]:
    """Runs the compiler into ``folder``; returns each file's content by its path under ``protos/``."""
    sources = sorted((PROTO_ROOT / PACKAGE).glob("*.proto"))
    if not sources:
        raise GenerationFailed(f"no .proto file in {PROTO_ROOT / PACKAGE}")
    _run_protoc(folder, sources)
    fresh = {DESCRIPTOR_SET: (folder / DESCRIPTOR_SET).read_bytes()}
    for source in sources:
        suffixes = PYTHON_SUFFIXES + (SERVICE_SUFFIXES if _has_service(source) else ())
        for suffix in suffixes:
            relative = PACKAGE / f"{source.stem}{suffix}"
            fresh[relative] = (folder / relative).read_bytes()
    return fresh


def _run_protoc(folder: Path, sources: Iterable[Path]) -> None:
    (folder / PACKAGE).mkdir(parents=True)
    tools = Path(sys.executable).parent
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc"),
        f"-I{PROTO_ROOT}",
        f"-I{_google_protos()}",
        *(f"--plugin=protoc-gen-{name}={tools / f'protoc-gen-{name}'}" for name in ("mypy", "mypy_grpc")),
        *(f"--{output}_out={folder}" for output in ("python", "grpc_python")),
        *(f"--{output}_out=quiet:{folder}" for output in ("mypy", "mypy_grpc")),
        f"--descriptor_set_out={folder / DESCRIPTOR_SET}",
        "--include_imports",
        "--include_source_info",
        *(str(source.relative_to(PROTO_ROOT)) for source in sources),
    ]
    done = subprocess.run(
        command, cwd=PROTO_ROOT, capture_output=True, text=True, timeout=PROTOC_SECONDS_MAX, check=False
    )
    # A warning (an unused import, say) is as good as an error: nobody reads it a second time.
    if done.returncode != 0 or done.stderr.strip():
        raise GenerationFailed(done.stderr.strip() or f"protoc ended with {done.returncode}")


def _google_protos() -> Path:
    """The folder that holds ``google/rpc/status.proto``, from googleapis-common-protos."""
    spec = importlib.util.find_spec("google.rpc")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        if Path(location, "status.proto").exists():
            return Path(location).parent.parent
    raise GenerationFailed("googleapis-common-protos is not installed; run scripts/setup")


def _has_service(source: Path) -> bool:
    return re.search(r"^service\s", source.read_text(encoding="utf-8"), re.MULTILINE) is not None


def _generated_paths(folder: Path) -> Iterable[Path]:
    for pattern in (*PYTHON_SUFFIXES, *SERVICE_SUFFIXES):
        yield from folder.glob(f"*{pattern}")
    yield from folder.glob("*.protoset")


if __name__ == "__main__":
    sys.exit(main())
