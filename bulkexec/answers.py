"""What DynamoDB answers, as far as it is looked at. Items and keys stay raw."""

from typing import Any

import msgspec


class IndexCapacity(msgspec.Struct):
    CapacityUnits: float = 0.0


class Capacity(msgspec.Struct):
    CapacityUnits: float = 0.0
    GlobalSecondaryIndexes: dict[str, IndexCapacity] = {}


class PageAnswer(msgspec.Struct):
    Items: list[msgspec.Raw] = []
    Count: int = 0
    ScannedCount: int = 0
    LastEvaluatedKey: msgspec.Raw = msgspec.Raw()  # empty at the end of the segment
    ConsumedCapacity: Capacity = msgspec.field(default_factory=Capacity)


class Request(msgspec.Struct):
    """One entry of UnprocessedItems."""

    DeleteRequest: dict[str, dict[str, Any]] = {}
    PutRequest: dict[str, dict[str, Any]] = {}

    @property
    def item(self) -> dict[str, Any]:
        """The item or key that it is about."""
        return self.DeleteRequest.get("Key") or self.PutRequest["Item"]


class BatchWriteAnswer(msgspec.Struct):
    UnprocessedItems: dict[str, list[Request]] = {}
    ConsumedCapacity: list[Capacity] = []


class StatementError(msgspec.Struct):
    Code: str = ""
    Message: str = ""

    @property
    def unsure(self) -> bool:
        """Whether the statement may have had its effect all the same."""
        return self.Code.startswith("InternalServer")

    @property
    def refused(self) -> bool:
        """Whether the item was not, or was no longer, as the statement wants it."""
        return self.Code.startswith(("ConditionalCheckFailed", "DuplicateItem"))


class StatementAnswer(msgspec.Struct):
    Error: StatementError | None = None


class StatementsAnswer(msgspec.Struct):
    Responses: list[StatementAnswer] = []
    ConsumedCapacity: list[Capacity] = []


class ItemAnswer(msgspec.Struct):
    ConsumedCapacity: Capacity = msgspec.field(default_factory=Capacity)


page_decoder = msgspec.json.Decoder(PageAnswer)
batch_write_decoder = msgspec.json.Decoder(BatchWriteAnswer)
statements_decoder = msgspec.json.Decoder(StatementsAnswer)
item_decoder = msgspec.json.Decoder(ItemAnswer)
