"""Rows of resources, tenures and receipts as values, the same for the writing and the reading side."""

import json
from collections.abc import Mapping
from typing import Final, cast

from hub.core.receipt import LeaseAnswer
from hub.core.tenure import (
    AbortReason,
    Floor,
    Holder,
    Resource,
    Tenure,
    TenureEnd,
    TenureState,
    unused_resource,
)
from hub.core.values import HolderId, ResourceName, RuntimeId
from hub.store.session import Row, Session, SqlValue
from synchub.contract import HASH_BYTES

TENURE_COLUMNS: Final = 16
"""How many columns of a row are of the tenure."""

_ResourceRow = tuple[int, int, int | None, int, int, bytes]
_TenureRow = tuple[
    str, int, str, str, str, int, int, int, int, int, int, bytes | None, str, str | None, str | None, int
]
# One encoder for all: json.dumps makes one at each call.
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def load_resource(sql: Session, hub_project_key: int | None, *, name: ResourceName) -> Resource:
    """Return a resource of a tenant, None for one that is not there; it reads as the floor where unused."""
    if hub_project_key is None:
        floors = cast("list[tuple[int]]", list(sql.fetch("load_floor")))
        return unused_resource(name, Floor(floors[0][0], floors[0][0]))
    named: dict[str, SqlValue] = {"resource": name, "hub_project_key": hub_project_key}
    row = cast("list[_ResourceRow]", list(sql.fetch("load_resource", named)))[0]
    token_floor, epoch_floor, fencing_token, epoch, maintenance_token, past_nonces = row
    floor = Floor(token_floor, epoch_floor)
    if fencing_token is None:
        return unused_resource(name, floor)
    tenures = [tenure_from_row(each) for each in sql.fetch("load_tenures", named)]
    return Resource(
        name,
        floor,
        fencing_token,
        epoch,
        maintenance_token,
        tuple(past_nonces[at : at + HASH_BYTES] for at in range(0, len(past_nonces), HASH_BYTES)),
        lease=next((tenure for tenure in tenures if not tenure.is_maintenance), None),
        maintenance=next((tenure for tenure in tenures if tenure.is_maintenance), None),
    )


def tenure_from_row(row: Row) -> Tenure:
    """Return a tenure from the columns in which it is stored."""
    (
        resource,
        is_maintenance,
        runtime_id,
        holder_id,
        display_name,
        fencing_token,
        epoch,
        ttl_nanos,
        acquire_nanos,
        renew_nanos,
        expire_nanos,
        nonce_hash,
        labels,
        abort_reason,
        end_state,
        end_nanos,
    ) = cast("_TenureRow", row[:TENURE_COLUMNS])
    return Tenure(
        ResourceName(resource),
        Holder(RuntimeId(runtime_id), HolderId(holder_id), display_name),
        fencing_token,
        epoch,
        ttl_nanos,
        acquire_nanos,
        renew_nanos,
        expire_nanos,
        nonce_hash,
        labels_from_json(labels),
        None if abort_reason is None else AbortReason(abort_reason),
        bool(is_maintenance),
        None if end_state is None else TenureEnd(TenureState(end_state), end_nanos),
    )


def row_from_tenure(tenure: Tenure) -> tuple[SqlValue, ...]:
    """Return the columns in which a tenure is stored."""
    return (
        tenure.resource,
        int(tenure.is_maintenance),
        tenure.holder.runtime_id,
        tenure.holder.holder_id,
        tenure.holder.display_name,
        tenure.fencing_token,
        tenure.epoch,
        tenure.ttl_nanos,
        tenure.acquire_nanos,
        tenure.renew_nanos,
        tenure.expire_nanos,
        tenure.nonce_hash,
        _to_json(dict(tenure.labels)) if tenure.labels else "{}",
        tenure.abort_reason,
        None if tenure.end is None else tenure.end.state,
        None if tenure.end is None else tenure.end.end_nanos,
    )


def labels_from_json(text: str) -> Mapping[str, str]:
    """Return labels from what is stored."""
    return {} if text == "{}" else cast("dict[str, str]", json.loads(text))


def answer_to_json(answer: LeaseAnswer) -> str:
    """Return an answer as it is stored: a JSON array, without anything of the nonce."""
    columns = list(row_from_tenure(answer.tenure))
    columns[_NONCE_COLUMN] = None
    return _to_json([columns, answer.is_renewed, answer.waited_nanos])


def answer_from_json(text: str) -> LeaseAnswer:
    """Return an answer from what is stored."""
    columns, is_renewed, waited_nanos = json.loads(text)
    return LeaseAnswer(tenure_from_row(tuple(columns)), is_renewed, waited_nanos)


_NONCE_COLUMN: Final = 11
"""Where the hash of the nonce stands in a row."""
