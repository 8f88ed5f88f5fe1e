"""What the demo found, and whether it is as it must be."""

from collections.abc import Sequence
from dataclasses import dataclass

from hub.cli.output import CommandFailed, print_json, print_table


@dataclass(frozen=True, slots=True)
class Check:
    """One figure: what it is about, what was found, and whether it is as it must be."""

    what: str
    found: str
    is_right: bool


def tell_checks(checks: Sequence[Check], *, is_json: bool) -> None:
    """Print the figures. Raises: CommandFailed where one of them is not as it must be."""
    if is_json:
        for check in checks:
            print_json({"what": check.what, "found": check.found, "is_right": check.is_right})
    else:
        print()
        rows = [[check.what, check.found, "yes" if check.is_right else "NO"] for check in checks]
        print_table(["WHAT", "FOUND", "RIGHT"], rows, empty="")
    wrong = [check.what for check in checks if not check.is_right]
    if wrong or not checks:
        raise CommandFailed(f"{len(wrong)} of {len(checks)} figures are wrong: {', '.join(wrong)}")
