"""Calls that were repeated under one request id are one operation: it takes effect once at most."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.robustness.lease_history import Call, Operation, Outcome
from tests.robustness.lease_times import Times


@dataclass(slots=True)
class Merged:
    """The operations with the repeated ones put together, and what their answers should not have been."""

    operations: list[Operation] = field(default_factory=list)
    last_nanos: dict[int, int] = field(default_factory=dict)
    """By number, until when each operation may have taken effect."""
    faults: list[str] = field(default_factory=list)
    done_unheard_count: int = 0
    """How many calls were not answered of which a repetition told that they had taken effect."""


def as_one_operation_each(operations: Sequence[Operation], times: Times) -> Merged:
    """Put together what shares a request id; everything else stays as it is."""
    merged = Merged()
    groups: defaultdict[tuple[str, Call, str], list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.arguments.request_id:
            groups[operation.client, operation.call, operation.arguments.request_id].append(operation)
        else:
            _add(merged, operation, times.last_nanos(operation))
            if operation.answer.is_replayed:
                merged.faults.append(f"replayed without a request id: {_name(operation)}")
    for group in groups.values():
        _merge(merged, group, times=times)
    merged.operations.sort(key=lambda operation: (operation.invoke_nanos, operation.number))
    return merged


def _merge(merged: Merged, group: Sequence[Operation], *, times: Times) -> None:
    answered = [operation for operation in group if operation.outcome == Outcome.OK]
    unknown = [operation for operation in group if operation.outcome == Outcome.UNKNOWN]
    refused = [operation for operation in group if operation.outcome == Outcome.REFUSED]
    firsts = [operation for operation in answered if not operation.answer.is_replayed]
    replays = [operation for operation in answered if operation.answer.is_replayed]
    for operation in refused:
        _add(merged, operation, operation.return_nanos)
    if len(firsts) > 1:
        merged.faults.append(f"executed twice: {', '.join(map(_name, firsts))}")
    if firsts:
        for operation in firsts:
            _add(merged, operation, operation.return_nanos)
        _compare(merged, firsts[0], replays=replays)
        done_nanos = min(operation.return_nanos for operation in answered)
    elif replays and unknown:
        told = min(replays, key=lambda operation: operation.return_nanos)
        done_nanos = told.return_nanos
        # One of the unknown ones did it, and this is the answer that was lost.
        first = min(operation.invoke_nanos for operation in unknown)
        whole = replace(told, invoke_nanos=first, answer=replace(told.answer, is_replayed=False))
        last_nanos = max(times.last_nanos(operation) for operation in unknown)
        _add(merged, whole, min(told.return_nanos, last_nanos))
        _compare(merged, told, replays=replays)
        merged.done_unheard_count += 1
    elif replays:
        merged.faults.append(f"replayed what nobody did: {_name(replays[0])}")
        return
    else:
        if unknown:
            first_one = min(unknown, key=lambda operation: operation.invoke_nanos)
            _add(merged, first_one, max(times.last_nanos(operation) for operation in unknown))
        return
    merged.faults.extend(
        f"refused although it was done: {_name(operation)}"
        for operation in refused
        if operation.invoke_nanos > done_nanos
    )


def _compare(merged: Merged, first: Operation, *, replays: Sequence[Operation]) -> None:
    for replay in replays:
        stored = replace(replay.answer, is_replayed=False, waited_nanos=0)
        if stored != replace(first.answer, is_replayed=False, waited_nanos=0):
            merged.faults.append(f"replayed another answer: {_name(replay)} instead of {_name(first)}")
        if replay.return_nanos < first.invoke_nanos:
            merged.faults.append(f"replayed before it was done: {_name(replay)}")


def _add(merged: Merged, operation: Operation, last_nanos: int) -> None:
    merged.operations.append(operation)
    merged.last_nanos[operation.number] = last_nanos


def _name(operation: Operation) -> str:
    return f"{operation.number} {operation.call} of {operation.client}"
