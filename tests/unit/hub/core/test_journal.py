"""Each row of the journal's decision table, and their order."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from hub.core.errors import IdempotencyConflict, InvalidRequest, LimitReached, Refusal, Violation
from hub.core.journal import (
    COMMIT_HASH_VERSION,
    OTHER_RESOURCE,
    Accepted,
    Commit,
    CommitResult,
    Found,
    StoredCommit,
    StreamHead,
    StreamId,
    check_credential,
    commit_hash,
    decide_commit,
    decide_recovery,
    stream_resource,
)
from hub.core.lease import decide_acquire, decide_release, decide_takeover
from hub.core.lease_errors import RevisionConflict, StaleLease
from hub.core.maintenance import decide_begin, decide_finish
from hub.core.tenure import Claim, Credential, Floor, Resource, hash_of_nonce, unused_resource
from hub.core.values import RuntimeId
from synchub.contract import SEQUENCE_MAX
from tests.unit.hub.journal_values import (
    commit,
    credential_of,
    event,
    holder_of,
    message,
    projection,
)
from tests.unit.hub.lease_values import facts_of, refusal_of

S = StreamId("s")
NOW, TTL = 1_000_000, 10_000
EXPIRE = NOW + TTL


def claim(holder: str = "a", nonce: str = "nonce") -> Claim:
    return Claim(holder_of(holder), hash_of_nonce(nonce), TTL)


def free() -> Resource:
    return unused_resource(stream_resource(S), Floor())


def held() -> Resource:
    return decide_acquire(free(), claim(), now_nanos=NOW, may_open=True, past_nonces_max=8).resource


def released() -> Resource:
    return decide_release(held(), credential_of(), now_nanos=NOW)


def taken_over() -> Resource:
    return decide_takeover(
        held(), claim("b", "other"), now_nanos=EXPIRE, may_open=True, past_nonces_max=8
    ).resource


def under_maintenance() -> Resource:
    return decide_begin(held(), claim("operator", "other"), now_nanos=NOW, past_nonces_max=8).resource


def found(
    resource: Resource | None = None,
    *,
    revision: int = 0,
    head: int = 0,
    event_ids: frozenset[str] = frozenset(),
    outbox_ids: frozenset[str] = frozenset(),
    named: frozenset[str] = frozenset(),
    projections: Mapping[str, StreamId] | None = None,
) -> Found:
    return Found(
        resource or held(), StreamHead(S, revision), head, event_ids, outbox_ids, named, projections or {}
    )


def refused(tried: Commit, on: Found | None = None, *, now: int = NOW) -> object:
    return refusal_of(decide_commit, tried, on or found(), now_nanos=now)


# --- rows 1 and 2: the message id was seen -----------------------------------------------------------


def stored(of: Commit, result: CommitResult) -> StoredCommit:
    return StoredCommit(COMMIT_HASH_VERSION, commit_hash(of), result)


RESULT = CommitResult(3, 5, NOW, 17, b"reply")


def test_a_new_message_id_recovers_nothing() -> None:
    assert decide_recovery(commit(), None) is None


def test_the_same_content_gives_the_stored_result_whatever_credential_it_shows() -> None:
    first = commit(events=[event()], reply=b"reply")
    again = replace(first, credential=credential_of("other", "b", nonce="another", token=99))
    assert decide_recovery(again, stored(first, RESULT)) == RESULT


@pytest.mark.parametrize(
    "other",
    [
        commit(stream="t", events=[event()]),
        commit(expected=1, events=[event()]),
        commit(events=[event("e2")]),
        commit(events=[event()], reply=b"another"),
        commit(),
    ],
)
def test_other_content_under_a_message_id_is_a_conflict(other: Commit) -> None:
    first = stored(commit(events=[event()]), RESULT)
    told = facts_of(IdempotencyConflict("message_id", "m1"))
    assert refusal_of(decide_recovery, other, first) == told


def test_a_hash_of_another_version_is_not_taken_for_the_same() -> None:
    first = replace(stored(commit(), RESULT), hash_version=COMMIT_HASH_VERSION + 1)
    assert refusal_of(decide_recovery, commit(), first) == facts_of(IdempotencyConflict("message_id", "m1"))


# --- row 3: the credential is not current ------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "now", "cause"),
    [
        (free, NOW, "LEASE_MISSING"),
        (released, NOW, "LEASE_MISSING"),
        (held, EXPIRE, "LEASE_EXPIRED"),
        (taken_over, EXPIRE, "LEASE_SUPERSEDED"),
        (under_maintenance, NOW, "LEASE_FENCED"),
    ],
)
def test_a_credential_that_is_not_current_is_stale_with_its_cause(
    resource: Callable[[], Resource], now: int, cause: str
) -> None:
    told = facts_of(StaleLease(stream_resource(S), 1, cause))
    assert refused(commit(events=[event()]), found(resource()), now=now) == told


@pytest.mark.parametrize(
    "shown",
    [
        credential_of(token=2),
        credential_of(nonce="another"),
        credential_of(holder="b"),
        replace(credential_of(), runtime_id=RuntimeId("another")),
    ],
)
def test_a_wrong_part_of_a_credential_is_superseded(shown: Credential) -> None:
    told = facts_of(StaleLease(stream_resource(S), shown.fencing_token, "LEASE_SUPERSEDED"))
    assert refused(commit(credential=shown)) == told


def test_a_credential_of_another_resource_is_stale_even_if_it_is_current_there() -> None:
    tried = commit(credential=credential_of("t"))
    assert refused(tried) == facts_of(StaleLease(stream_resource(S), 1, OTHER_RESOURCE))


def test_a_lease_lives_until_just_before_its_expire_time() -> None:
    assert check_credential(held(), credential_of(), now_nanos=EXPIRE - 1) == held().lease


def test_the_credential_of_a_maintenance_is_current_while_it_lasts() -> None:
    resource = under_maintenance()
    shown = credential_of(holder="operator", nonce="other", token=2)
    accepted = decide_commit(commit(credential=shown, events=[event()]), found(resource), now_nanos=NOW)
    assert (accepted.tenure, accepted.tenure.epoch) == (resource.maintenance, 1)
    finished = decide_finish(resource, shown, now_nanos=NOW, is_state_deleted=False)
    told = facts_of(StaleLease(stream_resource(S), 2, "LEASE_MISSING"))
    assert refused(commit(credential=shown), found(finished)) == told


# --- row 4: the revision -----------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [0, 4, 6, SEQUENCE_MAX])
def test_another_revision_than_the_streams_is_a_conflict_that_names_both(expected: int) -> None:
    told = facts_of(RevisionConflict("s", expected, 5))
    assert refused(commit(expected=expected, events=[event()]), found(revision=5)) == told


def test_the_revision_is_looked_at_without_events_too() -> None:
    assert refused(commit(expected=4), found(revision=5)) == facts_of(RevisionConflict("s", 4, 5))


# --- row 5: the names --------------------------------------------------------------------------------


def invalid(field: str, name: str, description: str) -> object:
    return facts_of(InvalidRequest([Violation(field, description)], {"field": field, "id": name}))


def conflict(field: str, name: str) -> object:
    return facts_of(IdempotencyConflict(field, name))


TWICE = "stands twice in this commit"


@pytest.mark.parametrize(
    ("tried", "field", "name"),
    [
        (commit(events=[event("e"), event("f"), event("e", b"another")]), "events[2].event_id", "e"),
        (
            commit(messages=[message("o"), message("o", destination="elsewhere")]),
            "outbox_messages[1].outbox_id",
            "o",
        ),
        (
            commit(projections=[projection("p"), projection("q"), projection("p")]),
            "projections[2].projection_id",
            "p",
        ),
    ],
)
def test_an_id_twice_in_a_commit_is_invalid_and_named_where_it_stands_again(
    tried: Commit, field: str, name: str
) -> None:
    assert refused(tried) == invalid(field, name, TWICE)


def test_an_id_may_stand_in_lists_of_different_kinds() -> None:
    tried = commit("x", events=[event("x")], messages=[message("x")], projections=[projection("x")])
    assert decide_commit(tried, found(), now_nanos=NOW).result.revision == 1


@pytest.mark.parametrize("name", ["É", "E\u0301", "É ", "é"])
def test_ids_are_compared_byte_by_byte(name: str) -> None:
    tried = commit(events=[event("É"), event(name + "x")])
    assert (
        decide_commit(
            tried, found(event_ids=frozenset({"é", "E\u0301", "É "})), now_nanos=NOW
        ).result.revision
        == 2
    )


def test_an_event_id_used_before_is_a_conflict() -> None:
    tried = commit(events=[event("e1"), event("e2")])
    assert refused(tried, found(event_ids=frozenset({"e2"}))) == conflict("events[1].event_id", "e2")


def test_an_outbox_id_used_before_is_a_conflict() -> None:
    tried = commit(messages=[message("o1"), message("o2")])
    told = conflict("outbox_messages[1].outbox_id", "o2")
    assert refused(tried, found(outbox_ids=frozenset({"o2"}))) == told


def test_a_projection_of_another_stream_is_a_conflict() -> None:
    tried = commit(projections=[projection("p1"), projection("p2")])
    owners = {"p1": S, "p2": StreamId("t")}
    told = conflict("projections[1].projection_id", "p2")
    assert refused(tried, found(projections=owners)) == told


def test_a_message_naming_an_event_that_does_not_exist_is_invalid() -> None:
    tried = commit(events=[event("e1")], messages=[message("o1", event="e1"), message("o2", event="e2")])
    told = invalid("outbox_messages[1].event_id", "e2", "names an event that does not exist")
    assert refused(tried) == told


@pytest.mark.parametrize("named", ["", "e1", "earlier"])
def test_a_message_may_name_an_event_of_its_commit_an_earlier_one_or_none(named: str) -> None:
    tried = commit(events=[event("e1")], messages=[message(event=named)])
    assert decide_commit(tried, found(named=frozenset({"earlier"})), now_nanos=NOW).result.revision == 1


# --- the order of the rows ---------------------------------------------------------------------------

EVERYTHING_WRONG = commit(
    expected=7,
    events=[event("used"), event("e"), event("e")],
    messages=[message("used", event="nowhere")],
    projections=[projection("foreign")],
)


@pytest.mark.parametrize(
    ("tried", "on", "reason"),
    [
        (EVERYTHING_WRONG, {"resource": free()}, "STALE_LEASE"),
        (EVERYTHING_WRONG, {}, "REVISION_CONFLICT"),
        (replace(EVERYTHING_WRONG, expected_revision=0), {}, "INVALID_REQUEST"),
        (
            replace(EVERYTHING_WRONG, expected_revision=0, events=[event("used")]),
            {},
            "IDEMPOTENCY_CONFLICT",
        ),
    ],
)
def test_the_first_row_that_holds_is_the_outcome(
    tried: Commit, on: Mapping[str, Resource], reason: str
) -> None:
    names = frozenset({"used"})
    stands = found(event_ids=names, outbox_ids=names, projections={"foreign": StreamId("t")}, **on)  # type: ignore[arg-type]
    with pytest.raises(Refusal) as caught:
        decide_commit(tried, stands, now_nanos=NOW)
    assert caught.value.reason == reason


# --- row 6: what it becomes --------------------------------------------------------------------------


def test_an_accepted_commit_goes_on_from_the_streams_revision_and_the_journals_head() -> None:
    tried = commit(expected=5, events=[event("e1"), event("e2"), event("e3")], reply=b"reply")
    accepted = decide_commit(tried, found(revision=5, head=40), now_nanos=NOW + 1)
    tenure = held().lease
    assert tenure is not None
    assert accepted == Accepted(CommitResult(5, 8, NOW + 1, 41, b"reply"), tenure)
    assert accepted.result.positions == range(41, 44)


def test_a_commit_without_events_orders_nothing() -> None:
    tried = commit(expected=5, messages=[message()], projections=[projection()])
    result = decide_commit(tried, found(revision=5, head=40), now_nanos=NOW).result
    assert (result.previous_revision, result.revision, list(result.positions)) == (5, 5, [])


@pytest.mark.parametrize(
    ("name", "revision", "head"),
    [("revision", SEQUENCE_MAX - 1, 0), ("position", 0, SEQUENCE_MAX - 1)],
)
def test_nothing_wraps_at_the_end_of_the_numbers(name: str, revision: int, head: int) -> None:
    stands = found(revision=revision, head=head)
    two = commit(expected=revision, events=[event("e1"), event("e2")])
    assert refused(two, stands) == facts_of(LimitReached(name, SEQUENCE_MAX))
    one = commit(expected=revision, events=[event("e1")])
    assert decide_commit(one, stands, now_nanos=NOW).result.revision == revision + 1
