"""What all tiers share: chance that can be repeated, ``--long``, and the account of skipped tests.

Fixtures of one tier belong into the ``conftest.py`` of its folder.
"""

import os
import random
import re
from typing import Final

import pytest
from hypothesis import settings

NEEDS_LONG: Final = "needs --long"
NO_REAL_EVENT_LOGS: Final = "no real event logs"
EXPECTED_CI_SKIPS: Final = (NEEDS_LONG, NO_REAL_EVENT_LOGS)
"""Why a test may be skipped where CI is set, as patterns. Any other skip fails the run there: what CI
does not run, nobody runs."""

HYPOTHESIS_EXAMPLES_LONG: Final = 2_000

# Machines that run tests are busy: how long one example took says nothing.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile(
    "long", parent=settings.get_profile("default"), max_examples=HYPOTHESIS_EXAMPLES_LONG
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run soak tests, and random ones for longer")
    parser.addoption("--seed", type=int, help="repeat the random input of a run that printed this seed")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its options
def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(2**32)
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.option.seed)
    settings.load_profile("long" if is_long(config) else "default")
    config.pluginmanager.register(SkipAccount(is_ci=os.environ.get("CI") == "true"))


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {seed_of(config)} (--seed {seed_of(config)} repeats the random input)"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not is_long(config):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason=NEEDS_LONG))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    # The header is far above by now, and `-q` has none.
    if exitstatus != pytest.ExitCode.OK:
        terminalreporter.write_line(f"seed of the random input: --seed {seed_of(config)}")


def seed_of(config: pytest.Config) -> int:
    return int(config.getoption("--seed"))


def is_long(config: pytest.Config) -> bool:
    return bool(config.getoption("--long"))


@pytest.fixture(scope="session")
def long_run(pytestconfig: pytest.Config) -> bool:
    """True with ``--long``: for tests that always run, and then with higher counts."""
    return is_long(pytestconfig)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Chance from the run's seed and the test's name, so that it is the same alone and among others."""
    return random.Random(f"{seed_of(request.config)} {request.node.nodeid}")


class SkipAccount:
    """Collects why tests were skipped; where CI is set, a reason that nobody expects fails the run."""

    def __init__(self, *, is_ci: bool) -> None:
        self._is_ci = is_ci
        self._unexpected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "wasxfail"):
            self._count(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._count(report)

    def _count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped:
            return
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not any(re.search(pattern, reason) for pattern in EXPECTED_CI_SKIPS):
            self._unexpected.append(f"{report.nodeid}: {reason}")

    # Before the terminal reporter, whose summary shows what is decided here.
    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._is_ci and self._unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._is_ci and self._unexpected:
            terminalreporter.section("skipped, though nothing may be skipped here", red=True, bold=True)
            for line in self._unexpected:
                terminalreporter.write_line(line)
