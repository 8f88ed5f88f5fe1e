"""One process a role: the second waits until the first is gone, for 6 s at most.

Run it: ``python docs/examples/process_lease.py 127.0.0.1:7443`` beside a running ``synchub serve``, also on
several machines at once; with the name of an owner behind it, that one serves for a second or says who does.
Without a name it shows what happens, by starting two such processes.
"""

import subprocess
import sys
import threading

from runtime_agent.core.lease_errors import LeaseHeld, LeaseLost
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError

ROLE = "gardener"
SERVED_SECONDS = 1.0


def serve(hub: HubClient, owner: str) -> None:
    """Serve in the role, unless another process does; stop where the role is lost."""
    has_lost_role = threading.Event()

    def stop(lost: LeaseLost) -> None:
        print(f"{owner} stops: {lost.sentence}", flush=True)
        has_lost_role.set()

    try:
        with hub.process_lease(ROLE, owner=owner, on_lost=stop) as process:
            print(f"{owner} serves with token {process.fencing_token}", flush=True)
            has_lost_role.wait(SERVED_SECONDS)
    except LeaseHeld as held:
        sys.exit(f"{owner} does not start: {held.holder_display_name} is the {ROLE}")
    print(f"{owner} has served", flush=True)


def start(address: str, owner: str) -> "subprocess.Popen[str]":
    """Start this program anew, as that owner."""
    command = [sys.executable, __file__, address, owner]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main() -> None:
    """Be one owner, or watch two."""
    address, *owners = sys.argv[1:]
    if owners:
        with HubClient.connect(address, hub_project="home") as hub:
            try:
                serve(hub, owners[0])
            except HubCallError as error:
                sys.exit(error.sentence)
        return
    with start(address, "anna") as first:
        assert first.stdout is not None
        print(first.stdout.readline(), end="")  # anna serves; bert is started meanwhile, and waits
        with start(address, "bert") as second:
            assert second.stdout is not None
            print(first.stdout.read() + second.stdout.read(), end="")


if __name__ == "__main__":
    main()
