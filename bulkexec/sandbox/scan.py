"""Scan: pages of 1 MB before the filter, in key-hash order, metered by what was evaluated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ministack.services.dynamodb as emulated
import msgspec

from bulkexec.sandbox.capacity import Charge, Item, Record, key_names, read_units
from bulkexec.sandbox.conditions import Condition, compile_condition
from bulkexec.sandbox.emulated_dynamodb import Shelves
from bulkexec.sandbox.service import ServiceError
from bulkexec.sandbox.shelf import Place, Stored, place_of, segment_of, walk_index

PAGE_BYTES = 1024 * 1024

_encode = msgspec.json.encode


@dataclass
class Page:
    """What one Scan evaluated: bytes and items, the texts of those that passed, and the last item unless the end was
    reached."""

    size_bytes: int = 0
    scanned: int = 0
    matched: int = 0
    last: Item | None = None
    texts: tuple[bytes, ...] = ()

    def body(self, table: Record, index: Record | None, count_only: bool) -> dict[str, Any]:
        """The answer's members."""
        members: dict[str, Any] = {"Count": self.matched, "ScannedCount": self.scanned}
        if not count_only:
            members["Items"] = [msgspec.Raw(text) for text in self.texts]
        if self.last is not None:
            names = dict.fromkeys(key_names(table) + (key_names(index) if index else []))
            members["LastEvaluatedKey"] = {name: self.last[name] for name in names}
        return members


def scan(table: Record, shelves: Shelves, request: dict[str, Any]) -> tuple[Page, Record | None]:
    """One page of a valid request, and the index it went over. Raises ServiceError if its expressions are not valid."""
    index = emulated._index_def(table, request["IndexName"]) if "IndexName" in request else None
    keep, project = _filter(request), _projection(request)
    page, texts = Page(), []
    for stored in _walk(table, shelves, request, index):
        if page.scanned and page.size_bytes + stored.size_bytes > PAGE_BYTES:
            break
        page.scanned += 1
        page.size_bytes += stored.size_bytes
        page.last = stored.item
        if keep is None or keep(stored.item):
            page.matched += 1
            texts.append(stored.text if project is None else _encode(project(stored.item)))
        if page.scanned == request.get("Limit") or page.size_bytes >= PAGE_BYTES:
            break
    else:
        page.last = None
    page.texts = tuple(texts)
    return page, index


def read_charge(size_bytes: int, consistent: bool, index: Record | None) -> Charge:
    """Units of a page, on the table or on the index that was read."""
    units = read_units(size_bytes, consistent)
    if index is None:
        return Charge("read", units)
    share = {index["IndexName"]: units}
    return Charge("read", 0.0, share) if "ProvisionedThroughput" in index else Charge("read", 0.0, {}, share)


def _walk(table: Record, shelves: Shelves, request: dict[str, Any], index: Record | None) -> Iterator[Stored]:
    segment, total = request.get("Segment", 0), request.get("TotalSegments", 1)
    after = _start(table, index or table, request)
    if after is not None and segment_of(after, total) != segment:
        where = f"TotalSegments: {total} Segment: {segment}"
        raise ServiceError(
            "ValidationException",
            "The provided starting key is invalid: Invalid ExclusiveStartKey. "
            f"Please use ExclusiveStartKey with correct Segment. {where}",
        )
    if index is None:
        return shelves.of(table).walk(segment, total, after)
    return walk_index(table, index, segment, total, after)


def _start(table: Record, record: Record, request: dict[str, Any]) -> Place | None:
    key = request.get("ExclusiveStartKey")
    if not key:
        return None
    try:
        return place_of(record, table, key)
    except (KeyError, ValueError, ArithmeticError) as error:
        message = "The provided starting key is invalid: The provided key element does not match the schema"
        raise ServiceError("ValidationException", message) from error


def _filter(request: dict[str, Any]) -> Condition | None:
    values, names = request.get("ExpressionAttributeValues", {}), request.get("ExpressionAttributeNames", {})
    if legacy := request.get("ScanFilter"):
        return lambda item: bool(emulated._evaluate_legacy_filter(item, legacy))
    if "FilterExpression" not in request:
        return None
    try:
        return compile_condition(request["FilterExpression"], values, names, "FilterExpression")
    except ValueError as error:
        raise ServiceError("ValidationException", str(error)) from error


def _projection(request: dict[str, Any]) -> Callable[[Item], Item] | None:
    """How items are cut down; an expression of top-level names alone needs no parsing for every item."""
    text = request.get("ProjectionExpression", "")
    names = request.get("ExpressionAttributeNames", {})
    wanted = request.get("AttributesToGet") or [names.get(part.strip(), part.strip()) for part in text.split(",")]
    if not text and "AttributesToGet" not in request:
        return None
    if "." in text or "[" in text:
        return lambda item: dict(emulated._apply_projection(item, request))
    return lambda item: {name: item[name] for name in wanted if name in item}
