"""Push two events to a hub without an agent, push them again, and watch until both are seen.

Run it: ``python docs/examples/push_and_watch.py 127.0.0.1:7443`` beside a running ``synchub serve``.
"""

import sys

from runtime_agent.core.values import RunKey
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.stored_values import BatchToPush, EventToPush

RUN = RunKey("garden", "wednesday")
EVENTS = (
    EventToPush(1, "note", payload=b"sown"),
    EventToPush(2, "note", payload=b"fenced", is_final=True),
)


def push(hub: HubClient) -> None:
    """Push the events and print what became of them."""
    for result in hub.push([BatchToPush(RUN, EVENTS)], runtime_id="example"):
        print(f"{result.accepted_count} accepted, {result.duplicate_count} duplicate")


def watch(hub: HubClient) -> None:
    """Print the run's events until its final one."""
    for update in hub.watch_events(project_id=RUN.project_id, run_id=RUN.run_id):
        for event in update.events:
            print(event.sequence, event.event_type, event.payload)
            if event.is_final:
                return


def main() -> None:
    """Push twice, then watch."""
    with HubClient.connect(sys.argv[1], hub_project="home") as hub:
        try:
            push(hub)
            push(hub)
            watch(hub)
        except HubCallError as error:
            sys.exit(f"{error.reason or 'no answer'}: {error.sentence}")


if __name__ == "__main__":
    main()
