"""PartiQL: ExecuteStatement, BatchExecuteStatement and ExecuteTransaction, metered and with OR in parentheses."""

import json
from typing import Any

import ministack.services._dynamodb_keywords as keywords
import ministack.services.dynamodb as emulated

from bulkexec.sandbox.capacity import Charge, Item, Record, key_names, read_units
from bulkexec.sandbox.conditions import FUNCTIONS
from bulkexec.sandbox.emulated_dynamodb import Answer, Target, table_of, target_of
from bulkexec.sandbox.metering import (
    Addressed,
    Handler,
    Meter,
    Metered,
    Request,
    consumed,
    consumed_by_table,
    with_members,
)
from bulkexec.sandbox.service import ServiceError
from bulkexec.sandbox.sizes import size_of

Parsed = dict[str, Any]


class StatementHandlers:
    """Handlers by operation. Mends the emulator's parser when made."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._parse = emulated._parse_partiql
        self._conditions = emulated._pq_conditions
        self._last: tuple[str, Any, Parsed] | None = None
        emulated._parse_partiql = self.parse
        emulated._pq_conditions = self._key_conditions
        self._call = emulated._pq_call
        emulated._pq_call = self._function

    def parse(self, statement: str, parameters: Any) -> Parsed:
        """Parses a statement once, though a batch asks for it again and again."""
        if self._last is None or self._last[0] != statement or self._last[1] is not parameters:
            parsed = self._parse(statement, parameters)
            parsed["parameters_used"] = _parameters_of(statement)
            self._last = (statement, parameters, parsed)
        return self._last[2]

    def _key_conditions(self, where: Any) -> list[tuple[str, str, Any]]:
        """The comparisons that every item must pass. The emulator gives up at any OR, though only an OR at the top
        leaves the key open; one among conjuncts just says nothing about it."""
        without_or = _without_or(where)
        return self._conditions(without_or) if without_or else []

    def _function(self, name: str, arguments: list[Any], nodes: Any) -> Any:
        """A function of two arguments means what it means in a filter; the emulator compares base64 texts instead."""
        if name in ("begins_with", "contains") and len(arguments) == 2:
            first, second = arguments
            return {"BOOL": FUNCTIONS[name](lambda _: first, lambda _: second)({})}
        return self._call(name, arguments, nodes)

    def single(self, original: Handler, request: Request) -> Answer:
        """ExecuteStatement, also for each statement of a batch."""
        parsed = self._parsed(request)
        table = table_of(parsed["table"]) if parsed else None
        if parsed is None or table is None:
            return original(request)
        if wrong := self._refused(request, parsed, table):
            return wrong
        if parsed["op"] == "SELECT":
            return self._select(original, request, parsed, table)
        target = _write_target(parsed, table)
        if target is None:
            return original(request)
        answer, metering = self._meter.write(original, request, [Addressed(parsed["table"], target)])
        return with_members(answer, consumed(request, metering))

    def _refused(self, request: Request, parsed: Parsed, table: Record) -> Answer | None:
        """What the emulator takes and DynamoDB does not: values out of range, keys that do not fit the schema."""
        parameters = request.get("Parameters", [])
        for value in parameters:
            if wrong := emulated._validate_attribute_value("", value):
                return _as_answer(wrong)
        if len(parameters) != parsed.get("parameters_used", len(parameters)):
            raise ServiceError("ValidationException", "Number of parameters in request and statement don't match.")
        _check_key_types(parsed, table)
        if parsed["op"] == "INSERT":
            return _refused_item(table, _inserted(parsed))
        changed = {path[0] for path, *_ in (parsed.get("assignments") or [])} | {
            p[0] for p in parsed.get("removes") or []
        }
        for name in key_names(table):
            if name in changed:
                what = f"Cannot update attribute {name}. This attribute is part of the key"
                raise ServiceError("ValidationException", f"One or more parameter values were invalid: {what}")
        return None

    def _parsed(self, request: Request) -> Parsed | None:
        try:
            return self.parse(request["Statement"], request.get("Parameters", []))
        except ValueError:
            return None  # the emulator says what is wrong with it

    def _select(self, original: Handler, request: Request, parsed: Parsed, table: Record) -> Answer:
        answer = original(request)
        if answer[0] != 200:
            return answer
        items = _evaluated(parsed, table)
        units = read_units(sum(map(size_of, items)), bool(request.get("ConsistentRead")))
        metering = [Metered(parsed["table"], Target(table, "", ""), Charge("read", units))]
        self._meter.check(metering)
        return with_members(answer, consumed(request, self._meter.spend(metering)))

    def batch(self, original: Handler, request: Request) -> Answer:
        """BatchExecuteStatement: all reads or all writes; errors come one by one under HTTP 200."""
        operations = {(self._parsed(one) or {}).get("op", "") == "SELECT" for one in request.get("Statements") or []}
        if len(operations) > 1:
            message = "Batch cannot contain both read and write statements: all must be of one kind"
            raise ServiceError("ValidationException", message)
        with self._meter.collecting() as metering:
            answer = original(request)
        members = consumed_by_table(request, metering)
        return with_members(answer, {**_with_error_codes(answer), **members})

    def transaction(self, original: Handler, request: Request) -> Answer:
        """ExecuteTransaction."""
        with self._meter.collecting(transactional=True) as metering:
            answer = original(request)
        return with_members(answer, consumed_by_table(request, metering))


def _without_or(where: Any) -> Any:
    if where is None or where[0] == "or":
        return None
    if where[0] != "and":
        return where
    left, right = _without_or(where[1]), _without_or(where[2])
    return ("and", left, right) if left and right else left or right


def _parameters_of(statement: str) -> int:
    return sum(token[1] == "?" for token in keywords._tokenize(statement))


def _as_answer(wrong: Any) -> Answer:
    status, headers, body = wrong
    return status, headers, body


def _inserted(parsed: Parsed) -> Item:
    item: Item = parsed["item"]
    return item["M"] if set(item) == {"M"} else item


def _refused_item(table: Record, item: Item) -> Answer | None:
    """The refusal of an item that PutItem would refuse; numbers in a good one become canonical."""
    for name in key_names(table):
        if name not in item:
            what = f"Missing the key {name} in the item"
            raise ServiceError("ValidationException", f"One or more parameter values were invalid: {what}")
    wrong = emulated._validate_item(item, table["pk_name"], table["sk_name"])
    wrong = wrong or emulated._resolve_table_key_values(table, item, allow_extra=True)[2]
    wrong = wrong or emulated._validate_index_key_values(table, item)
    return _as_answer(wrong) if wrong else None


def _check_key_types(parsed: Parsed, table: Record) -> None:
    for name, operator, value in parsed["conditions"]:
        wanted = emulated._get_attr_type(table, name)
        if name in key_names(table) and operator == "=" and wanted not in value:
            what = "Condition parameter type does not match schema type"
            raise ServiceError("ValidationException", f"One or more parameter values were invalid: {what}")


def _write_target(parsed: Parsed, table: Record) -> Target | None:
    if parsed["op"] == "INSERT":
        return target_of(table, _inserted(parsed))
    partition, sort, _, error = emulated._partiql_key_target(table, parsed)
    return None if error else Target(table, partition, sort)


def _evaluated(parsed: Parsed, table: Record) -> list[Item]:
    """Items a SELECT looks at: one, an item collection, or all of the table."""
    equal = {name: value for name, operator, value in parsed["conditions"] if operator == "="}
    rows = table["items"]
    if table["pk_name"] in equal:
        row = rows.get(emulated._extract_key_val(equal[table["pk_name"]]), {})
        if table["sk_name"] in equal:
            item = row.get(emulated._extract_key_val(equal[table["sk_name"]]))
            return [item] if item else []
        return list(row.values())
    return [item for row in rows.values() for item in row.values()]


def _with_error_codes(answer: Answer) -> dict[str, Any]:
    """A batch's responses; the emulator makes `Throttling` of ThrottlingException, DynamoDB `ThrottlingError`."""
    if b'"Throttling"' not in answer[2]:
        return {}
    responses = json.loads(answer[2])["Responses"]
    for response in responses:
        if response.get("Error", {}).get("Code") == "Throttling":
            response["Error"]["Code"] = "ThrottlingError"
    return {"Responses": responses}
