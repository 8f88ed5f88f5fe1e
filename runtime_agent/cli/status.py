"""``runtime-agent status``: where the agent and its log stand."""

import json

from rich.console import Console
from rich.table import Table

from runtime_agent.cli.options import DataOption, JsonOption, data_folder, nanos_to_time
from runtime_agent.core.values import AgentFacts, HubLinkState, HubLinkStatus, RuntimeIdentity
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader
from runtime_agent.local_api.codec import LINK_STATE_FROM_PROTO, status_to_proto, timestamp_from_proto
from runtime_agent.local_client import SocketLog
from synchub.v1 import runtime_agent_service_pb2 as pb


def status(data: DataOption = None, json_output: JsonOption = False) -> None:
    """Show what the agent holds, how far it is synced, and how it stands towards the hub.

    Without a running agent the local log is read as it lies.
    """
    folder = data_folder(data)
    found = _load_status(folder)
    link_state = LINK_STATE_FROM_PROTO.get(found.hub_link_state, HubLinkState.STOPPED).value
    facts: dict[str, str | int] = {
        "agent": f"running, pid {found.pid}" if found.pid else "not running",
        "hub_project": found.hub_project,
        "runtime_id": found.runtime_id,
        "instance_id": found.instance_id,
        "hub_link": link_state,
        "hub_link_detail": found.hub_link_detail,
        "hub_address": found.hub_address,
        "hub_generation": found.hub_generation,
        "run_count": found.run_count,
        "event_count": found.event_count,
        "unsynced_event_count": found.unsynced_event_count,
        "quarantined_run_count": found.quarantined_run_count,
        "log_bytes": found.log_bytes,
        "last_acknowledge_time": (
            nanos_to_time(timestamp_from_proto(found.last_acknowledge_time))
            if found.HasField("last_acknowledge_time")
            else ""
        ),
        "data": folder,
    }
    if json_output:
        print(json.dumps({**facts, "pid": found.pid, "version": found.version}))
        return
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        if value != "":
            table.add_row(name.replace("_", " "), str(value))
    Console().print(table, markup=False)


def _load_status(folder: str) -> pb.AgentStatus:
    agent = SocketLog.connect(folder)
    if agent is not None:
        try:
            return agent.load_status()
        finally:
            agent.close()
    reader = SqliteEventLogReader.open(folder)
    try:
        identity = reader.load_identity() or RuntimeIdentity("", "")
        link = HubLinkStatus(HubLinkState.STOPPED, "", "", "")
        memory = reader.load_hub_memory()
        found = status_to_proto(
            AgentFacts(identity, 0, "", 0),
            link,
            totals=reader.load_totals(),
            hub_generation=memory.hub_generation,
        )
    finally:
        reader.close()
    found.ClearField("start_time")
    return found
