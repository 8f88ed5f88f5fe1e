"""What is generated from the ``.proto`` files is fresh, and runs with what pyproject.toml allows."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[2]
GENERATED: Final = ROOT / "protos/synchub/v1"
GENERATE_SECONDS_MAX: Final = 100


def test_the_generated_code_is_what_the_protos_give() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "scripts/gen_protos.py", "--check"],
        check=False,
        capture_output=True,
        text=True,
        timeout=GENERATE_SECONDS_MAX,
    )
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize(
    ("package", "files", "pattern"),
    [
        ("grpcio", "*_pb2_grpc.py", r"GRPC_GENERATED_VERSION = '([\d.]+)'"),
        ("protobuf", "*_pb2.py", r"# Protobuf Python Version: ([\d.]+)"),
    ],
)
def test_no_version_is_allowed_that_the_generated_code_refuses(
    package: str, files: str, pattern: str
) -> None:
    written = {re.findall(pattern, path.read_text(encoding="utf-8"))[0] for path in GENERATED.glob(files)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {Requirement(line).name: Requirement(line) for line in project["dependencies"]}[package]
    assert {f">={version}" for version in written} == {str(wanted.specifier)}


def test_the_descriptor_set_explains_every_service() -> None:
    shipped = FileDescriptorSet.FromString((GENERATED / "synchub.protoset").read_bytes())
    ours = [file for file in shipped.file if file.name.startswith("synchub/")]
    services = [service.name for file in ours for service in file.service]
    explained = [
        file.service[location.path[1]].name
        for file in ours
        for location in file.source_code_info.location
        # 6 is FileDescriptorProto.service: a path of two is the service itself.
        if len(location.path) == 2 and location.path[0] == 6 and location.leading_comments
    ]
    assert services != []
    assert sorted(explained) == sorted(services)
