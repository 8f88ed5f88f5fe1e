"""Every refusal has one reason and one status, and something in the code raises it."""

import ast
from pathlib import Path
from typing import Final

import pytest

from hub.core import errors as hub_errors
from hub.core import identity_errors, lease_errors
from hub.rpc.error_table import STATUS_CODES
from runtime_agent.core import errors as agent_errors

ROOT: Final = Path(__file__).resolve().parents[2]


DEFINITIONS: Final = [
    Path(str(module.__file__)) for module in (hub_errors, identity_errors, lease_errors, agent_errors)
]
"""Where errors are defined; what is not imported here is not among the subclasses."""


def leaves(root: type[Exception]) -> list[type[Exception]]:
    below = [leaf for child in root.__subclasses__() for leaf in leaves(child)]
    return below or [root]


def called_names(program: str) -> set[str]:
    """What is called, and so perhaps made, anywhere in a program but where its errors are defined."""
    return {
        node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        for path in (ROOT / program).rglob("*.py")
        if path not in DEFINITIONS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
    }


@pytest.mark.parametrize(
    ("program", "root"),
    [("hub", hub_errors.HubError), ("runtime_agent", agent_errors.RuntimeAgentError)],
)
def test_every_error_of_the_tree_is_raised_somewhere(program: str, root: type[Exception]) -> None:
    names = {leaf.__name__ for leaf in leaves(root)}
    assert len(names) > 5
    assert names - called_names(program) == set()


def test_every_refusal_has_a_reason_of_its_own() -> None:
    reasons = [leaf.reason for leaf in leaves(hub_errors.Refusal) if issubclass(leaf, hub_errors.Refusal)]
    assert sorted(reasons) == sorted(hub_errors.Reason)


def test_every_reason_has_one_status() -> None:
    assert set(STATUS_CODES) == set(hub_errors.Reason)
