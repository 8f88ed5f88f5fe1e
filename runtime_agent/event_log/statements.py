"""The log's SQL, read once from the named files beside this module."""

from functools import cache
from importlib.resources import files

_PACKAGE = "runtime_agent.event_log"


@cache
def statements() -> dict[str, str]:
    """Return each named statement of ``sql/*.sql`` under its name."""
    found: dict[str, str] = {}
    for file in ("reads.sql", "writes.sql"):
        text = files(_PACKAGE).joinpath("sql", file).read_text(encoding="utf-8")
        for part in text.split("-- name: ")[1:]:
            name, _, body = part.partition("\n")
            lines = [line for line in body.splitlines() if line and not line.startswith("--")]
            found[name.strip()] = "\n".join(lines).rstrip(";")
    return found


@cache
def migrations() -> tuple[str, ...]:
    """Return the scripts of ``migrations/NNNN_*.sql`` in order; the n-th makes schema version n."""
    folder = files(_PACKAGE).joinpath("migrations")
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sql"))
    for number, name in enumerate(names, start=1):
        assert name.startswith(f"{number:04d}_"), f"migration {name} is out of order"
    return tuple(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
