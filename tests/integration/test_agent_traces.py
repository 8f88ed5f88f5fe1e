"""A trace from the program that appends to the hub's commit, through the programs as they are shipped."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from runtime_agent.core.errors import AppendError
from runtime_agent.core.values import AppendRequest, LogEvent, NewEvent, RunKey
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader
from runtime_agent.local_client import open_local_log
from tests.contract.collector import Collector, facts_of

RUNTIME_AGENT: Final = Path(sys.executable).with_name("runtime-agent")
SYNCHUB: Final = Path(sys.executable).with_name("synchub")
SECONDS: Final = 60
TRACE_ID: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID: Final = "00f067aa0ba902b7"
TRACEPARENT: Final = f"00-{TRACE_ID}-{SPAN_ID}-01"
OTHER: Final = f"00-{'5' * 32}-{'6' * 16}-01"
APPEND: Final = ("append", "--project", "p", "--run", "r", "--type", "t")


def agent(folder: Path, *arguments: str, **variables: str) -> str:
    environment = {**os.environ, "RUNTIME_AGENT_DATA": str(folder), **variables}
    done = subprocess.run(
        [RUNTIME_AGENT, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        env=environment,
        timeout=SECONDS,
        text=True,
    )
    return done.stdout


def events(folder: Path, run: str) -> tuple[LogEvent, ...]:
    reader = SqliteEventLogReader.open(str(folder))
    try:
        return reader.read_events(RunKey("p", run), after_sequence=0, count_max=1_000, bytes_max=2**30)
    finally:
        reader.close()


def test_append_and_exec_take_the_context_of_their_environment(tmp_path: Path) -> None:
    agent(tmp_path, *APPEND, "--payload", "a")
    agent(tmp_path, *APPEND, "--payload", "a", TRACEPARENT=TRACEPARENT)
    agent(tmp_path, *APPEND, "--payload", "a", TRACEPARENT="nonsense")
    assert [dict(event.attributes) for event in events(tmp_path, "r")] == [
        {},
        {"traceparent": TRACEPARENT},
        {},
    ]
    program = ("exec", "--project", "p", "--run", "e", "--", "sh", "-c", 'echo "$TRACEPARENT"')
    assert agent(tmp_path, *program, TRACEPARENT=TRACEPARENT) == TRACEPARENT + "\n"
    assert [dict(event.attributes) for event in events(tmp_path, "e")] == [
        {"traceparent": TRACEPARENT},
        {"exit_code": "0", "traceparent": TRACEPARENT},
    ]


def test_a_repeated_append_of_another_trace_is_the_same_append(tmp_path: Path) -> None:
    repeated = (*APPEND, "--payload", "a", "--append-id", "once", "--json")
    agent(tmp_path, *repeated, TRACEPARENT=TRACEPARENT)
    for variables in ({"TRACEPARENT": OTHER}, {}):
        again = json.loads(agent(tmp_path, *repeated, **variables))
        assert (again["sequence"], again["is_repeat"]) == (1, True)
    assert [dict(event.attributes) for event in events(tmp_path, "r")] == [{"traceparent": TRACEPARENT}]


def test_a_program_that_traces_appends_within_its_span_or_in_the_trace_that_it_names(tmp_path: Path) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    request = AppendRequest(RunKey("p", "r"), (NewEvent("t"),))
    with open_local_log(str(tmp_path)) as log:
        log.append(request)
        with tracer.start_as_current_span("work"):
            context = trace.get_current_span().get_span_context()
            log.append(request)
            log.append(request, traceparent=TRACEPARENT)
    own = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert [event.attributes.get("traceparent") for event in events(tmp_path, "r")] == [
        None,
        own,
        TRACEPARENT,
    ]


def test_an_append_that_the_log_refuses_is_refused_alike_with_a_trace(tmp_path: Path) -> None:
    too_many = {f"k{number}": "" for number in range(17)}
    request = AppendRequest(RunKey("p", "r"), (NewEvent("t", attributes=too_many),))
    refused: list[str] = []
    with open_local_log(str(tmp_path)) as log:
        for traceparent in (None, TRACEPARENT):
            with pytest.raises(AppendError) as error:
                log.append(request, traceparent=traceparent)
            refused.append(str(error.value))
    assert refused[0] == refused[1]
    assert events(tmp_path, "r") == ()


def test_a_trace_goes_from_an_append_to_the_commit_in_the_hub(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Collector() as collector:
        where = ("--db", str(tmp_path / "hub.db"), "--listen", "127.0.0.1:0", "--http", "none")
        hub = subprocess.Popen(
            [SYNCHUB, "serve", *where, "--otlp-endpoint", collector.endpoint],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        running: subprocess.Popen[bytes] | None = None
        try:
            assert hub.stdout is not None
            address = hub.stdout.readline().split()[2]
            agent(data, *APPEND, "--payload", "a", TRACEPARENT=TRACEPARENT)
            names = ("--hub-project", "h", "--runtime-id", "runtime")
            running = subprocess.Popen(
                [RUNTIME_AGENT, "start", "--hub", address, "--data", str(data), *names],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            (span,) = collector.spans(1, is_wanted=lambda each: each.name == "ingest")
        finally:
            for process in (running, hub):
                if process is not None:
                    process.terminate()
                    process.communicate(timeout=SECONDS)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE_ID, SPAN_ID)
    facts = facts_of(span)
    assert (facts["synchub.run_id"], facts["synchub.accepted_count"]) == ("r", 1)
