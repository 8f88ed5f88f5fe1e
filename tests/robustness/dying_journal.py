"""Kills a hub's journal at each step of SQLite that a call makes, and looks at what is left.

    python -m tests.robustness.dying_journal FOLDER SEED STRIDE

Each call is made in a process of its own that ends itself by SIGKILL at the beginning or the end of one
statement, at every STRIDE-th of these moments, from one that SEED chooses, and around each COMMIT. What
is stored then must be what was before the call or what is after it, and the same call again must lead to
what is after it. Prints for each call how often it was the one and the other, as JSON. Nothing of gRPC is
in here: it does not bear forks.
"""

import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

from hub.core.journal import OutboxId
from hub.core.limits import Limits
from tests.unit.hub.journal_gate import JournalGate
from tests.unit.hub.journal_values import MINUTE, commit, credential_of, event, message, projection

LIMITS: Final = Limits(outbox_tries_max=1)
"""A message that is returned once is dead."""
HOUR: Final = 60 * MINUTE
MOMENTS_MAX: Final = 10_000

Call = Callable[[JournalGate], object]
Stored = dict[str, list[tuple[object, ...]]]


def commit_of_everything(gate: JournalGate) -> object:
    """A first commit: events, messages of a key and without, projections, a reply."""
    return gate.commit(
        commit(
            "m1",
            events=[event("e1"), event("e2", event_type="other")],
            messages=[message("o1", event="e1", key="k"), message("o2", key="k"), message("o3")],
            projections=[projection("p1"), projection("p2")],
            reply=b"reply",
        )
    )


def commit_of_many(gate: JournalGate) -> object:
    """A commit of more rows than one statement takes, on a stream with events; a projection replaced."""
    return gate.commit(
        commit(
            "m2",
            expected=2,
            events=[event(f"many{n}") for n in range(40)],
            messages=[message(f"many{n}", destination="elsewhere") for n in range(40)],
            projections=[projection("p1", b"new")],
        )
    )


def commit_of_messages(gate: JournalGate) -> object:
    """A commit that orders nothing."""
    return gate.commit(commit("m3", expected=42, messages=[message("o4")]))


def commit_to_another_stream(gate: JournalGate) -> object:
    """The first commit to a second stream, with a message about an event of the first."""
    request = commit(
        "m4",
        stream="t",
        credential=credential_of("t"),
        events=[event("t1")],
        messages=[message("o5", event="e1")],
    )
    return gate.commit(request)


def claim(gate: JournalGate) -> object:
    """Claims all that is available: o1, o3, o4, o5 in their order."""
    return gate.claim(visible_nanos=HOUR)


def acknowledge_first_of_key(gate: JournalGate) -> object:
    """Delivers o1, which lets o2 be the first of its key."""
    return gate.answer(gate.journal.acknowledge(gate.caller, OutboxId("o1"), claim_id="claim-1"))


def return_to_die(gate: JournalGate) -> object:
    """Gives o3 back, whose tries are used up."""
    return gate.answer(
        gate.journal.return_(gate.caller, OutboxId("o3"), claim_id="claim-2", delay_nanos=MINUTE)
    )


def release(gate: JournalGate) -> object:
    """Lets o3 be tried anew."""
    return gate.answer(gate.journal.release(gate.caller, OutboxId("o3")))


CALLS: Final[tuple[Call, ...]] = (
    commit_of_everything,
    commit_of_many,
    commit_of_messages,
    commit_to_another_stream,
    claim,
    acknowledge_first_of_key,
    return_to_die,
    release,
)


@contextmanager
def life(folder: Path) -> Iterator[JournalGate]:
    """One life of the journal over the store in a folder."""
    gate = JournalGate(folder, limits=LIMITS)
    try:
        yield gate
    finally:
        gate.close()


def stored_in(folder: Path) -> Stored:
    with life(folder) as gate:
        return gate.stored()


class Moments:
    """Counts the beginnings and ends of statements from when it is armed, and kills at one of them."""

    def __init__(self, last: int) -> None:
        """``last`` is the moment at which the process ends."""
        self._last = last
        self.count = 0
        self.commits: list[int] = []
        self.is_armed = False

    def watch(self, connection: apsw.Connection) -> None:
        """Be told of a connection's statements."""
        connection.trace_v2(apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE, self._note)

    def _note(self, event: dict[str, object]) -> None:
        if not self.is_armed:
            return
        self.count += 1
        if event.get("sql") == "COMMIT":
            self.commits.append(self.count)
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def made(folder: Path, call: Call, *, last: int = MOMENTS_MAX) -> Moments:
    """Make a call in this process, which may be its end."""
    moments = Moments(last)
    hooks: list[Callable[[apsw.Connection], None]] = apsw.connection_hooks
    hooks.append(moments.watch)
    try:
        with life(folder) as gate:
            moments.is_armed = True
            call(gate)
            moments.is_armed = False
    finally:
        hooks.remove(moments.watch)
    return moments


def killed(folder: Path, call: Call, *, last: int) -> None:
    """Make a call in a process that ends itself at a moment."""
    child = os.fork()
    if child == 0:
        try:
            made(folder, call, last=last)
        finally:
            os._exit(1)  # Not killed: that is a fault.
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), (call.__name__, last, status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def tried(folder: Path, call: Call, *, rng: random.Random, stride: int) -> Counter[str]:
    """Kill a call at its moments, each time over a copy of the store; then let it happen."""
    before = stored_in(folder)
    copy = folder.with_name("copy")

    def renewed() -> Path:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        return copy

    moments = made(renewed(), call)
    after = stored_in(copy)
    assert after != before
    chosen = {*range(rng.randint(1, stride), moments.count + 1, stride)}
    for moment in moments.commits:
        chosen |= {moment, moment - 1, min(moment + 1, moments.count)}
    left: Counter[str] = Counter()
    for moment in sorted(chosen):
        killed(renewed(), call, last=moment)
        found = stored_in(copy)
        assert found in (before, after), (call.__name__, moment)
        left["before" if found == before else "after"] += 1
        with life(copy) as gate:
            call(gate)
        assert stored_in(copy) == after, (call.__name__, moment)
    with life(folder) as gate:
        call(gate)
    return left


def main() -> None:
    folder, seed, stride = Path(sys.argv[1]) / "store", sys.argv[2], int(sys.argv[3])
    folder.mkdir()
    with life(folder) as gate:
        for stream in ("s", "t"):
            gate.credential(stream, ttl_nanos=HOUR)
    rng = random.Random(seed)
    print(json.dumps({call.__name__: tried(folder, call, rng=rng, stride=stride) for call in CALLS}))


if __name__ == "__main__":
    main()
