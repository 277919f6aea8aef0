"""Field ids for Avro schemas without any, by the specification's names of fields.

ClickHouse before July 2026 wrote such manifests and manifest lists. As in the Java library, names count only where no
node of a schema has an id: in a schema with ids, a field without one is another writer's own.

Spec: "Manifest Entry Fields", "Data File Fields", "Manifest Lists"; Appendix A, "Avro".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeVar

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import Header
from iceberg_cli.iceberg.avro.schema import AvroType, BadSchemaError, parse_schema
from iceberg_cli.iceberg.spec.manifests.schemas import avro_name, manifest_list_schema, manifest_schema
from iceberg_cli.iceberg.spec.types.partition_spec import fields_in_header

HeaderT = TypeVar("HeaderT", bound=Header)

_VERSIONS: Final = (1, 3)  # whose fields are those of all
_ID_ATTRIBUTES: Final = ("field-id", "element-id", "key-id", "value-id")


def identified_manifest(file: HeaderT) -> HeaderT:
    """A manifest whose schema has field ids: itself, or those of the names where it has none.

    The partition struct's are in the header's partition spec; where that does not tell, the struct stays without.

    Raises:
        CorruptFile: names that stand for one field twice.
    """
    if _has_ids(file.schema_text):
        return file
    partition = _partition(file.metadata)
    return _identified(file, *(manifest_schema(version, partition) for version in _VERSIONS))


def identified_list(file: HeaderT) -> HeaderT:
    """A manifest list, as `identified_manifest`."""
    return file if _has_ids(file.schema_text) else _identified(file, *map(manifest_list_schema, _VERSIONS))


@lru_cache(maxsize=256)
def _has_ids(schema_text: bytes) -> bool:
    return _ids_in(json.loads(schema_text))


def _ids_in(node: Any) -> bool:
    if isinstance(node, list):
        return any(map(_ids_in, node))
    if not isinstance(node, dict):
        return False
    return any(node.get(name) is not None for name in _ID_ATTRIBUTES) or any(map(_ids_in, node.values()))


def _identified(file: HeaderT, *known: str) -> HeaderT:
    try:
        schema, type_, text = _with_ids_of(file.schema_text, *known)
    except BadSchemaError as error:
        raise CorruptFile(file.path, "avro.schema", f"it has no field ids, and by names: {error}") from None
    return replace(file, schema=schema, type=type_, schema_text=text)


@lru_cache(maxsize=256)
def _with_ids_of(schema_text: bytes, *known: str) -> tuple[Any, AvroType, bytes]:
    schema = json.loads(schema_text)
    for each in known:
        schema = _merged(schema, json.loads(each))
    text = json.dumps(schema).encode()
    return *parse_schema(text), text


def _merged(node: Any, known: Any) -> Any:
    """A schema with the ids of another one, both parsed JSON, field by field of the same name."""
    if isinstance(known, list):
        known = next((each for each in known if each != "null"), None)
    if isinstance(node, list):
        return [_merged(each, known) for each in node]
    if not isinstance(node, dict) or not isinstance(known, dict):
        return node
    if isinstance(node.get("type"), (dict, list)):
        return {**node, "type": _merged(node["type"], known)}
    if node.get("type") == known["type"] == "array":
        return {**node, "items": _merged(node["items"], known["items"])}
    if node.get("type") != "record" or known["type"] != "record":
        return node
    fields_by_name = {field["name"]: field for field in known["fields"]}
    return {**node, "fields": [_with_id(each, fields_by_name.get(each["name"])) for each in node["fields"]]}


def _with_id(node: Mapping[str, Any], known: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if known is None:
        return node
    return {**node, "field-id": known["field-id"], "type": _merged(node["type"], known["type"])}


def _partition(header: Mapping[str, bytes]) -> dict[str, Any]:
    """The partition struct of the header's partition spec; without fields where that does not tell their ids."""
    try:
        fields = fields_in_header(header.get("partition-spec", b"[]"))
        ids_by_name = {each["name"]: each["field-id"] for each in fields}
    except (ValueError, KeyError, TypeError):
        ids_by_name = {}
    spelled = {avro_name(name): id_ for name, id_ in ids_by_name.items()} | ids_by_name
    fields = [{"name": name, "field-id": id_, "type": "null"} for name, id_ in spelled.items()]
    return {"type": "record", "name": "r102", "fields": fields}
