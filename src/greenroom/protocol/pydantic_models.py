"""pydantic's only door: its models as parameters and results, for those who have it (the extra `pydantic`).

Nobody imports this file before pydantic itself was imported, which a model's author has done.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ValidationError


def is_model(kind: Any) -> bool:
    """Whether it is a class of models."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def schema(
    kind: type[BaseModel], mode: Literal["validation", "serialization"], reference: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model's schema, and the definitions that it refers to."""
    made = kind.model_json_schema(by_alias=True, ref_template=reference.replace("{name}", "{model}"), mode=mode)
    definitions: dict[str, Any] = made.pop("$defs", {})
    return made, definitions


def from_json(kind: type[BaseModel], value: Any) -> BaseModel:
    """The model of what a peer sent, coercing nothing; raises `ValueError` with all that is wrong."""
    try:
        return kind.model_validate_json(msgspec.json.encode(value), strict=True)
    except ValidationError as error:
        said = ((".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False))
        raise ValueError("; ".join(f"{where}: {what}" if where else what for where, what in said)) from None


def as_json(model: BaseModel) -> Any:
    """The model in JSON's own types."""
    return model.model_dump(mode="json", by_alias=True)
