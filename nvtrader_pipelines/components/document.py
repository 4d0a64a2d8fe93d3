"""Frozen documents, and rows of documents derived from the columns of tables."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from html import escape
from types import NoneType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

if TYPE_CHECKING:  # the documents of the kill switch have no rows
    import polars as pl
    from polars.datatypes import DataTypeClass

    from nvtrader_pipelines.components.columns import TableSchema

N_SHOWN, MAX_TEXT = 12, 500  # rows, columns, items and characters in a notebook


class Document(BaseModel):
    """Facts for the command line, `Pipeline`, the report and other programs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls, facts: object, **others: Any) -> Self:
        """Make a document of other fields, and of an object's attributes for the fields that are not among them."""
        return cls(**{name: getattr(facts, name) for name in cls.model_fields if name not in others}, **others)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema with field comments as descriptions, where fields have none."""
        # private there: a public name would change the code that every run reaches
        from nvtrader_pipelines.components.component import _comments

        schema_of_document = handler(schema)
        properties = handler.resolve_ref_schema(schema_of_document).get("properties", {})
        for parent in cls.__mro__:
            if issubclass(parent, Document) and parent is not Document:
                for name, comment in _comments(cast("Any", parent)).items():
                    properties.get(name, {}).setdefault("description", comment)
        return schema_of_document

    def frame(self, part: str | None = None) -> "pl.DataFrame":
        """Rows of a field, by default of the first that has rows; without one, the document as a row.

        Raises:
            ValueError: if the field has no rows.
        """
        import polars as pl

        types = row_types(type(self))
        if part not in (None, *types):
            raise ValueError(f"{type(self).__name__} has rows in {', '.join(types) or 'no field'}, but not in {part!r}")
        name = part or next(iter(types), None)
        rows = getattr(self, name) if name else (self,)
        return frame_of(rows) if rows or name is None else pl.DataFrame(schema=schema_of(types[name]))

    def _repr_html_(self) -> str:
        """HTML for notebooks: the fields that are set, and the first rows and columns of those with rows."""
        types = row_types(type(self))
        return _table(
            {name: (self.frame(name) if name in types else value) for name, value in _set_facts(self).items()}
        )


class PartialDocument(Document):
    """Facts of which some need not be there: a field that was not set is left out."""

    @model_serializer(mode="wrap")
    def _leave_out_unset(self, serialize: SerializerFunctionWrapHandler):  # noqa: ANN202 - the schema stays that of the fields
        return {name: value for name, value in serialize(self).items() if name in self.model_fields_set}


Row = TypeVar("Row", bound=Document)


def row_model(schema: "TableSchema") -> Any:
    """Derive the base class of a row, a document, from the columns of a table; any value may be null."""
    fields: dict[str, Any] = {
        column.name: (_python_type(column.dtype) | None, Field(description=column.doc)) for column in schema.columns
    }
    return create_model("Row", __base__=Document, **fields)


def rows_of(model: type[Row], frame: "pl.DataFrame") -> tuple[Row, ...]:
    """Rows of a frame that has the columns of a model, or of one of a union."""
    row = next(one for one in get_args(model) or (model,) if set(one.model_fields) <= set(frame.columns))
    return tuple(map(row.model_validate, frame.select(*row.model_fields).iter_rows(named=True)))


def frame_of(rows: Sequence[BaseModel]) -> "pl.DataFrame":
    """Frame of rows."""
    import polars as pl

    return pl.DataFrame([row.model_dump() for row in rows], infer_schema_length=None)


def schema_of(model: type[BaseModel]) -> "dict[str, pl.DataType | DataTypeClass]":
    """Types of a model's columns; a field that is no number, flag, time or tuple is text."""
    return {name: _column_type(field.annotation) for name, field in model.model_fields.items()}


def row_types(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Types of rows by field, of the fields that hold rows."""
    kinds = {name: get_args(field.annotation) for name, field in model.model_fields.items()}
    return {name: kind[0] for name, kind in kinds.items() if kind[1:] == (...,) and hasattr(kind[0], "model_fields")}


def _set_facts(model: BaseModel) -> dict[str, Any]:
    """Fields that are set and in JSON."""
    fields = type(model).model_fields
    return {name: value for name, value in model if not (fields[name].exclude or value in (None, "", (), {}))}


def _table(facts: Mapping[str, Any]) -> str:
    rows = (f"<tr><th>{escape(str(name))}</th><td>{_html(value)}</td></tr>" for name, value in facts.items())
    return f"<table>{''.join(rows)}</table>"


def _html(value: Any) -> str:
    """HTML of a fact, which may be a document, a frame or a list."""
    import polars as pl

    if isinstance(value, pl.DataFrame):
        with pl.Config(tbl_cols=N_SHOWN, tbl_rows=N_SHOWN):
            return value[:, :N_SHOWN]._repr_html_()
    if isinstance(value, BaseModel):
        return _table(_set_facts(value))
    if isinstance(value, dict):
        return _table(value)
    if isinstance(value, tuple):
        more = f" … {len(value):,} in all" if len(value) > N_SHOWN else ""
        return ", ".join(map(_html, value[:N_SHOWN])) + more
    text = f"{value:{',.2f' if abs(value) >= 1000.0 else '.6g'}}" if isinstance(value, float) else str(value)
    return escape(text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…")


def _column_type(annotation: Any) -> "pl.DataType | DataTypeClass":
    import polars as pl

    arguments = get_args(annotation)
    if get_origin(annotation) is tuple:
        return pl.List(_column_type(arguments[0]))
    kind = arguments[0] if NoneType in arguments else annotation
    types = {int: pl.Int64, float: pl.Float64, bool: pl.Boolean, datetime: pl.Datetime("us", "UTC"), date: pl.Date}
    return types.get(kind, pl.String)


def _python_type(dtype: "pl.DataType | DataTypeClass") -> Any:
    import polars as pl

    if isinstance(dtype, pl.List):
        return tuple[_python_type(dtype.inner), ...]
    return dtype.to_python()
