"""Lists of outbox messages: by state and destination, and in pages."""

from typing import Final

from hub.core.limits import Limits
from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.journaling import (
    StreamWriter,
    acknowledge,
    claim,
    commit,
    commit_request,
    give_back,
    leased,
    new_message,
)

PENDING: Final = messages.OUTBOX_MESSAGE_STATE_PENDING
CLAIMED: Final = messages.OUTBOX_MESSAGE_STATE_CLAIMED
DEAD: Final = messages.OUTBOX_MESSAGE_STATE_DEAD
DELIVERED: Final = messages.OUTBOX_MESSAGE_STATE_DELIVERED
TRIES_MAX: Final = Limits().outbox_tries_max
MEBIBYTE: Final = 1024 * 1024


def test_messages_are_listed_by_state_and_destination_without_being_touched(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    writer = StreamWriter(journal_stub, hub_project, credential=leased(lease_stub, hub_project))
    for name in ("dead", "delivered", "claimed", "pending"):
        writer.append(outbox_messages=[new_message(name, name), new_message(f"other {name}", "other")])
    for _ in range(TRIES_MAX):
        give_back(journal_stub, hub_project, claim(journal_stub, hub_project, "dead").messages[0])
    acknowledge(journal_stub, hub_project, claim(journal_stub, hub_project, "delivered").messages[0])
    claim(journal_stub, hub_project, "claimed", visible=600)
    others = ["other dead", "other delivered", "other claimed", "other pending"]

    def listed(**fields: object) -> list[str]:
        request = messages.ListOutboxMessagesRequest(hub_project=hub_project, **fields)  # type: ignore[arg-type]
        return [each.outbox_id for each in journal_stub.ListOutboxMessages(request).messages]

    for _ in range(2):
        assert listed(state=DEAD) == ["dead"]
        assert listed(state=DELIVERED) == ["delivered"]
        assert listed(state=CLAIMED) == ["claimed"]
        assert sorted(listed(state=PENDING)) == sorted(["pending", *others])
        assert sorted(listed()) == sorted(["dead", "claimed", "pending", *others])
        assert listed(destination="other") == others
        assert listed(destination="other", state=DEAD) == []
        assert listed(destination="delivered") == []


def test_outbox_pages_go_by_availability_creation_and_id(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    credential = leased(lease_stub, hub_project)
    later = [new_message(f"later{n}") for n in range(2)]
    for n, message in enumerate(later):
        message.available_time.FromSeconds(4_000_000_000 - n)
    early = new_message("early")
    early.available_time.FromSeconds(-1)
    first = commit_request(
        hub_project, credential, outbox_messages=[*later, new_message("b"), new_message("a"), early]
    )
    commit(journal_stub, first)
    second = commit_request(hub_project, credential, message_id="m2", outbox_messages=[new_message("0")])
    commit(journal_stub, second)
    for page_size in (1, 2, 5, 6, 7):
        request = messages.ListOutboxMessagesRequest(hub_project=hub_project, page_size=page_size)
        found: list[str] = []
        while True:
            page = journal_stub.ListOutboxMessages(request)
            assert len(page.messages) <= page_size
            found += [message.outbox_id for message in page.messages]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        assert found == ["early", "b", "a", "0", "later1", "later0"]


def test_a_page_of_the_outbox_is_bounded_in_bytes(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    credential = leased(lease_stub, hub_project)
    for n in range(2):
        large = [new_message(f"{n}{each}", payload=bytes(MEBIBYTE)) for each in "abc"]
        committed = commit_request(hub_project, credential, message_id=f"m{n}", outbox_messages=large)
        commit(journal_stub, committed)
    request = messages.ListOutboxMessagesRequest(hub_project=hub_project)
    pages: list[int] = []
    while True:
        page = journal_stub.ListOutboxMessages(request)
        pages.append(len(page.messages))
        assert len(page.messages) == 1 or page.ByteSize() <= 2 * MEBIBYTE + len(page.next_page_token) + 4
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert pages == [1] * 6
