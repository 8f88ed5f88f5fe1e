"""The dashboard, the rules and the page about metrics say what the hub really has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hub.http.metric_table import METRICS, Kind

ROOT: Final = Path(__file__).resolve().parents[2]
DASHBOARD: Final = ROOT / "docs" / "deploy" / "grafana-dashboard.json"
RULES: Final = ROOT / "docs" / "deploy" / "prometheus-alerts.yml"
PAGE: Final = ROOT / "docs" / "telemetry.md"

OF_PROCESS: Final = {
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
}
"""Metrics that every program has."""
OF_PROMETHEUS: Final = {"up"}
ADDED_LABELS: Final = {"instance", "job"}
"""Labels that Prometheus adds when it scrapes."""
METRIC: Final = re.compile(r"\b((?:synchub|process)_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?")
LABEL: Final = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
LEGEND_LABEL: Final = re.compile(r"\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}")


def labels_of(name: str) -> set[str]:
    """The labels of a metric as it stands in a query, with the suffix of a histogram where it has one."""
    if name in OF_PROCESS | OF_PROMETHEUS:
        return ADDED_LABELS
    spec = METRICS.get(name)
    if spec is not None and spec.kind is not Kind.HISTOGRAM:
        return {*spec.labels, *ADDED_LABELS}
    base, _, suffix = name.rpartition("_")
    spec = METRICS.get(base)
    if spec is None or spec.kind is not Kind.HISTOGRAM or suffix not in ("bucket", "sum", "count"):
        raise AssertionError(f"the hub has no metric {name}")
    return {*spec.labels, *ADDED_LABELS, *(["le"] if suffix == "bucket" else [])}


def faults_of(expression: str, legend: str = "") -> list[str]:
    """What is wrong with a query: metrics or labels that are not there."""
    faults: list[str] = []
    known: set[str] = set()
    found = METRIC.findall(expression)
    if not found:
        return [f"{expression!r} asks for no metric"]
    for name, matchers in found:
        try:
            labels = labels_of(name)
        except AssertionError as error:
            faults.append(str(error))
            continue
        known |= labels
        faults += [f"{name} has no label {label}" for label in LABEL.findall(matchers) if label not in labels]
    grouped = {part.strip() for group in GROUPING.findall(expression) for part in group.split(",")}
    shown = set(LEGEND_LABEL.findall(legend))
    return faults + [
        f"no metric of {expression!r} has the label {label}" for label in (grouped | shown) - known
    ]


def panels() -> list[dict[str, object]]:
    loaded: list[dict[str, object]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return loaded


def queries() -> Iterator[tuple[str, str]]:
    """(query, legend) of each panel."""
    for panel in panels():
        targets = panel.get("targets", [])
        assert isinstance(targets, list)
        for target in targets:
            yield target["expr"], target["legendFormat"]


def rules() -> list[tuple[str, str, str]]:
    """(name, expression, summary) of each rule; the file's form is simple enough to be read by lines."""
    text = RULES.read_text(encoding="utf-8")
    found = re.findall(
        r"- alert: (\w+)\n\s+expr: ([^\n]+)\n(?:\s+for: \w+\n)?\s+labels:\n\s+severity: (?:page|ticket)\n"
        r'\s+annotations:\n\s+summary: "([^"\n]+)"\n',
        text,
    )
    assert len(found) == text.count("- alert:")
    return found


@pytest.mark.parametrize(("expression", "legend"), tuple(queries()))
def test_a_panel_asks_for_what_the_hub_has(expression: str, legend: str) -> None:
    assert faults_of(expression, legend) == []


@pytest.mark.parametrize(("name", "expression", "summary"), rules())
def test_a_rule_asks_for_what_the_hub_has(name: str, expression: str, summary: str) -> None:
    assert name.startswith("Synchub")
    assert faults_of(expression, summary) == []


@pytest.mark.parametrize(
    "expression",
    [
        "synchub_no_such_total",
        "synchub_group_seconds",
        "synchub_events_total_bucket",
        'synchub_events_total{reason="x"}',
        "sum by (reason) (synchub_events_total)",
        "1 + 1",
    ],
)
def test_a_query_for_what_is_not_there_is_found(expression: str) -> None:
    assert faults_of(expression) != []


def test_every_metric_is_on_the_dashboard() -> None:
    asked = " ".join(expression for expression, _ in queries())
    missing = [name for name in METRICS if not re.search(rf"\b{name}(?:_bucket|_sum|_count)?\b", asked)]
    assert missing == []


def test_the_first_row_says_whether_all_is_well_and_each_panel_explains_itself() -> None:
    titles = [panel["title"] for panel in panels() if panel["type"] == "row"]
    assert titles[0] == "Is it well?"
    kinds = [panel["type"] for panel in panels()]
    assert set(kinds[1 : kinds.index("row", 1)]) == {"stat"}
    assert [panel["title"] for panel in panels() if panel["type"] != "row" and not panel["description"]] == []


def test_panels_do_not_lie_on_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        assert isinstance(place, dict)
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)


def test_the_page_has_every_metric_with_its_kind_its_labels_and_what_it_says() -> None:
    rows = re.findall(
        r"^\| `(synchub_[a-z0-9_]+)` \| (\w+) \| ([^|]+) \| ([^|]+) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    told = {name: (kind, tuple(re.findall(r"`(\w+)`", labels)), says) for name, kind, labels, says in rows}
    assert len(told) == len(rows)
    assert told == {
        name: (spec.kind.value, spec.labels, spec.documentation) for name, spec in METRICS.items()
    }
