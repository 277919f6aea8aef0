"""Clustering: the columns by which a table says that its rows lie near each other, and how files say that theirs do.

Spec: Delta protocol, "Clustered Table", "Writer Requirements for Clustered Table". The tags are those of Delta Spark.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.statistics_columns import physical_name
from iceberg_cli.encoding.strict_json import check_shape
from iceberg_cli.errors import InvalidMetadata

FEATURE: Final = "clustering"
DOMAIN: Final = "delta.clustering"
PROVIDER: Final = "liquid"  # of files that Delta clustered, or this program
_CUBE: Final = "ZCUBE_ID"
_CUBE_COLUMNS: Final = "ZCUBE_ZORDER_BY"
_CUBES: Final = uuid.UUID("6f7a1f0e-3d0c-5c55-9a3c-0b1f9d4f6f10")
Path = tuple[str, ...]


def clustering_columns(snapshot: Snapshot) -> tuple[Path, ...]:
    """The physical paths of the columns by which a table is clustered; none: it is not, or by none any more.

    Raises:
        InvalidMetadata: the domain does not say them.
    """
    action = snapshot.domains.get(DOMAIN)
    if action is None or not supports(snapshot.protocol, FEATURE):
        return ()
    try:
        columns = json.loads(action["configuration"])["clusteringColumns"]
        check_shape(columns, [[str]], "clusteringColumns")
        if not all(columns) or len({*map(tuple, columns)}) < len(columns):
            raise ValueError(f"{columns} has an empty path, or one twice")  # noqa: TRY301
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidMetadata("domainMetadata", DOMAIN, f"it names no columns: {error}") from error
    return tuple(map(tuple, columns))


def logical_names(columns: Sequence[Path], metadata: Metadata) -> tuple[str, ...]:
    """The names that users know physical paths by, with dots between their parts."""
    return tuple(".".join(_logical(path, schema_fields(metadata))) for path in columns)


def _logical(path: Path, fields: Sequence[Mapping[str, Any]]) -> Path:
    """The logical path of a physical one; a part that the schema lacks stays as it is."""
    field = next((each for each in fields if physical_name(each) == path[0]), None)
    if field is None:
        return path
    inner = field["type"].get("fields", ()) if isinstance(field["type"], Mapping) else ()
    return (field["name"], *(_logical(path[1:], inner) if path[1:] else ()))


def columns_text(names: Sequence[str]) -> str:
    """Columns as tags and commits name them."""
    return json.dumps([*names], separators=(",", ":"), ensure_ascii=False)


def clustered(names: Sequence[str], first_path: str) -> dict[str, Any]:
    """What the add of a clustered file says of that.

    Args:
        names: of the columns, as users know them.
        first_path: of the first file that was clustered together with it, which makes the identity of these files.
    """
    tags = {
        _CUBE: str(uuid.uuid5(_CUBES, first_path)),
        _CUBE_COLUMNS: columns_text(names),
    }
    return {"tags": tags, "clusteringProvider": PROVIDER}
