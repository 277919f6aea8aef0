"""What is encrypted: nothing here has keys, so such files are never opened.

Spec: "Encryption Keys", `key-id` of snapshots, `key_metadata` (fields 519 and 131).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from iceberg_cli.iceberg.avro.container import encrypted_file

if TYPE_CHECKING:
    import pyarrow as pa

    from iceberg_cli.iceberg.spec.table_metadata.snapshot import Snapshot


def check_plain_list(snapshot: Snapshot) -> None:
    """Refuse a snapshot whose manifest list is encrypted.

    Raises:
        Refused: it has a `key-id`.
    """
    if snapshot.key_id is not None:
        path = snapshot.manifest_list or f"snapshot {snapshot.snapshot_id}"
        sign = f"key-id {snapshot.key_id} of snapshot {snapshot.snapshot_id}"
        raise encrypted_file(path, sign)


def check_plain_manifests(rows: pa.Table) -> None:
    """Refuse encrypted manifests.

    Args:
        rows: of manifest lists; without the column `key_metadata` they were looked at before.

    Raises:
        Refused: one of them has `key_metadata`.
    """
    if "key_metadata" not in rows.column_names or rows["key_metadata"].null_count == len(rows):
        return
    encrypted = rows.filter(pc.is_valid(rows["key_metadata"]))
    raise encrypted_file(encrypted["manifest_path"][0].as_py(), "its manifest list has key_metadata for it")
