"""The page on running a hub says of each bound what it is by default."""

import re
from pathlib import Path
from typing import Final

from hub.core.limits import Limits

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "running.md"
HEADING: Final = "## How much may come, and how much stays\n"


def bounds_of_page() -> dict[str, str]:
    """The names in the first column of the table, each with its default in the second."""
    section = PAGE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    bounds: dict[str, str] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        names = re.findall(r"`(\w+)`", cells[0]) if line.startswith("| `") else []
        if names:
            bounds.update(zip(names, cells[1].split("; "), strict=True))
    return bounds


def test_every_bound_is_a_setting_with_the_default_that_the_page_says() -> None:
    said, limits = bounds_of_page(), Limits()
    assert "message_bytes_max" in said
    assert said == {name: f"{getattr(limits, name):,}" for name in said}


def test_every_rate_and_quota_of_a_hub_project_or_credential_is_on_the_page() -> None:
    scoped = ("credential_requests_", "credential_streams_", "hub_project_", "writer_queue_hub_project_")
    settings = {name for name in Limits.__dataclass_fields__ if name.startswith(scoped)}
    assert settings <= set(bounds_of_page())
