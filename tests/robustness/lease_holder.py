"""A program that holds leases and renews them until it is killed: ``lease_holder ADDRESS RESOURCE…``.

It says each operation as a line of the recorded history.
"""

import sys
import time
from typing import Final

from tests.robustness.lease_calls import Credential, LeaseCalls
from tests.robustness.lease_history import Arguments, Operation, Recorder, line_of

HOLDER: Final = Arguments("holder-runtime", "holder", "nonce-of-the-holder-that-dies")
TTL_NANOS: Final = 5_000_000_000
RENEW_SECONDS: Final = 1.0


def main(address: str, *resources: str) -> None:
    calls = LeaseCalls("holder", address, recorder=Recorder())
    held: list[Credential] = []
    for resource in resources:
        asked = Arguments(HOLDER.runtime_id, HOLDER.holder_id, HOLDER.nonce, ttl_nanos=TTL_NANOS)
        granted = calls.acquire(resource, asked)
        say(granted)
        assert granted.answer.token is not None, granted
        held.append(
            Credential(resource, asked.runtime_id, asked.holder_id, granted.answer.token, asked.nonce)
        )
    while True:
        time.sleep(RENEW_SECONDS)
        for renewed in calls.renew_together(held):
            say(renewed)


def say(operation: Operation) -> None:
    sys.stdout.buffer.write(line_of(operation))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
