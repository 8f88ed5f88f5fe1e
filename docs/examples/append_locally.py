"""Append events to the durable local log, with or without an agent running on it.

Run it: ``python docs/examples/append_locally.py FOLDER``, FOLDER being what ``runtime-agent start --data``
was given. Each call of ``append`` returns once its events are on stable storage; the agent brings them to
the hub. ``append_id`` makes it safe to run this again: what is there is answered, not doubled.
"""

import sys

from runtime_agent.core.values import AppendRequest, NewEvent, RunKey
from runtime_agent.local_client import open_local_log


def main() -> None:
    """Append two events."""
    run = RunKey("garden", "tuesday")
    with open_local_log(sys.argv[1]) as log:
        started = log.append(AppendRequest(run, (NewEvent("started"),), append_id="start"))
        measured = NewEvent("measured", payload=b"12.5", attributes={"unit": "mm"}, is_final=True)
        ended = log.append(AppendRequest(run, (measured,), append_id="end"))
    print(f"sequences {started.first_sequence} and {ended.last_sequence} are on stable storage")


if __name__ == "__main__":
    main()
