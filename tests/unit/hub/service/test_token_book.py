"""The tokens in memory, and inside a transaction: who is let in, and until when."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from hub.core.credential import Token, caller_of_token
from hub.core.identity_errors import CredentialExpired, CredentialInvalid, CredentialRevoked, Unauthenticated
from hub.core.limits import Limits
from hub.core.values import Caller, HubProject, Role, TokenId
from hub.service import token_book
from hub.service.readers import Readers
from hub.service.token_book import TokenBook, check_still_counts
from hub.store.contract import Changes, WriteTransaction
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from tests.contract.secured import Bearer, Kind, new_bearer

Result = TypeVar("Result")


class Clock:
    """The time by which credentials end."""

    def __init__(self) -> None:
        self.nanos = 1_000

    def __call__(self) -> int:
        return self.nanos


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> TokenBook:
    return TokenBook(credential_nanos=clock)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with opened_engine(tmp_path / "hub.db", limits=Limits()) as engine:
        store = SqlStore(engine, limits=Limits(), wall_nanos=1)
        yield store
        store.close()


def bearer(ttl_seconds: float | None = None) -> Bearer:
    return new_bearer("p", Kind(Role.READER), display_name="n", now_nanos=1_000, ttl_seconds=ttl_seconds)


def announced(*tokens: Token) -> Changes:
    return Changes(tokens={token.token_id: token for token in tokens})


@contextmanager
def committed(store: SqlStore) -> Iterator[WriteTransaction]:
    transaction = store.writing.begin()
    yield transaction
    store.writing.commit(1)


def load(book: TokenBook, store: SqlStore) -> None:
    with ThreadPoolExecutor(1) as executor:
        asyncio.run(book.load(Readers(store, executor)))


def test_a_token_lets_in_from_the_moment_it_is_announced(book: TokenBook) -> None:
    made = bearer()
    with pytest.raises(CredentialInvalid):
        book.authenticate(made.bearer_token)
    book.announce(announced(made.token))
    assert book.authenticate(made.bearer_token) == made.token
    assert len(book) == 1


def test_a_revocation_counts_from_the_moment_it_is_announced(book: TokenBook) -> None:
    made = bearer()
    book.announce(announced(made.token))
    assert book.fault(made.token.token_id) is None
    book.announce(announced(replace(made.token, revoke_nanos=5)))
    assert isinstance(book.fault(made.token.token_id), CredentialRevoked)
    with pytest.raises(CredentialRevoked):
        book.authenticate(made.bearer_token)


def test_an_expiry_is_seen_by_the_clock_and_needs_nothing_else(book: TokenBook, clock: Clock) -> None:
    made = bearer(ttl_seconds=1)
    book.announce(announced(made.token))
    clock.nanos = 1_000_000_999
    assert book.fault(made.token.token_id) is None
    clock.nanos += 1
    assert isinstance(book.fault(made.token.token_id), CredentialExpired)
    with pytest.raises(CredentialExpired):
        book.authenticate(made.bearer_token)


def test_of_a_token_that_is_gone_nothing_counts(book: TokenBook) -> None:
    assert isinstance(book.fault(TokenId("0" * 20)), CredentialInvalid)


def test_an_id_with_another_tokens_secret_is_refused(book: TokenBook) -> None:
    first, second = bearer(), bearer()
    book.announce(announced(first.token, second.token))
    mixed = f"synchub_{first.token.token_id}_{second.bearer_token.split('_')[2]}"
    with pytest.raises(CredentialInvalid):
        book.authenticate(mixed)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_all_tokens_are_loaded_page_by_page(
    book: TokenBook, store: SqlStore, monkeypatch: pytest.MonkeyPatch, *, count: int
) -> None:
    monkeypatch.setattr(token_book, "TOKENS_READ_AT_ONCE", 3)
    made = [bearer() for _ in range(count)]
    with committed(store) as transaction:
        for each in made:
            transaction.tokens.create(each.token)
    load(book, store)
    assert len(book) == count
    assert [book.authenticate(each.bearer_token) for each in made] == [each.token for each in made]


def test_a_revocation_that_is_loaded_counts(book: TokenBook, store: SqlStore) -> None:
    made = bearer()
    with committed(store) as transaction:
        transaction.tokens.create(made.token)
        transaction.tokens.revoke(made.token.token_id, 7)
    load(book, store)
    with pytest.raises(CredentialRevoked):
        book.authenticate(made.bearer_token)


def test_a_second_revocation_changes_nothing_and_is_announced_again(store: SqlStore) -> None:
    made = bearer()
    with committed(store) as transaction:
        transaction.tokens.create(made.token)
        first = transaction.tokens.revoke(made.token.token_id, 7)
    transaction = store.writing.begin()
    assert transaction.tokens.revoke(made.token.token_id, 8) == first
    # Its first COMMIT may have been one whose outcome nobody heard of.
    assert store.writing.commit(1).tokens == {made.token.token_id: first}


class TestWithinATransaction:
    """``check_still_counts``: what was queued before a token ended comes to its turn after it."""

    def faults(
        self, store: SqlStore, caller: Caller, times: Sequence[int], *, before: Callable[[], None]
    ) -> list[type[Unauthenticated] | None]:
        before()
        transaction = store.writing.begin()
        found: list[type[Unauthenticated] | None] = []
        for credential_nanos in times:
            try:
                check_still_counts(transaction, caller, credential_nanos=credential_nanos)
            except Unauthenticated as fault:
                found.append(type(fault))
            else:
                found.append(None)
        store.writing.rollback()
        return found

    def test_a_revocation_of_the_same_group_counts(self, store: SqlStore) -> None:
        made = bearer()
        caller = caller_of_token(made.token, "")
        with committed(store) as transaction:
            transaction.tokens.create(made.token)
            check_still_counts(transaction, caller, credential_nanos=1)
            transaction.tokens.revoke(made.token.token_id, 2)
            with pytest.raises(CredentialRevoked):
                check_still_counts(transaction, caller, credential_nanos=1)
        assert self.faults(store, caller, [1], before=lambda: None) == [CredentialRevoked]

    def test_a_revocation_that_was_undone_does_not_count(self, store: SqlStore) -> None:
        made = bearer()
        with committed(store) as transaction:
            transaction.tokens.create(made.token)

        def undone() -> None:
            transaction = store.writing.begin()
            transaction.tokens.revoke(made.token.token_id, 2)
            store.writing.rollback()

        assert self.faults(store, caller_of_token(made.token, ""), [1], before=undone) == [None]

    def test_an_expiry_counts_by_the_given_time(self, store: SqlStore) -> None:
        made = bearer(ttl_seconds=1)
        with committed(store) as transaction:
            transaction.tokens.create(made.token)
        caller = caller_of_token(made.token, "")
        times = [1_000_000_999, 1_000_001_000]
        assert self.faults(store, caller, times, before=lambda: None) == [None, CredentialExpired]

    def test_who_has_no_token_has_none_that_ends(self, store: SqlStore) -> None:
        caller = Caller(HubProject("p"), None, Role.ANONYMOUS, "", "")
        assert self.faults(store, caller, [2**62], before=lambda: None) == [None]

    def test_a_token_of_another_store_does_not_count(self, store: SqlStore) -> None:
        caller = caller_of_token(bearer().token, "")
        assert self.faults(store, caller, [1], before=lambda: None) == [CredentialInvalid]
