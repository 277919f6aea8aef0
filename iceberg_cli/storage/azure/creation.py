"""New objects in Azure that are written block by block.

Source: https://learn.microsoft.com/rest/api/storageservices/put-block-list
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from iceberg_cli.storage.parts import PartWriter


class BlockWriter(PartWriter):
    """A new object that is written in blocks, whose ids no other writer of it has.

    Blocks that are in no list are seen by nobody, and the service removes them after a week, or as soon as anybody
    creates the object.

    Args:
        path: of the object.
        put: creates it whole, see `Storage.put_if_absent`.
        stage: sends a block of an id.
        create: makes the object of blocks, see `Writer.commit`.
    """

    def __init__(
        self,
        path: str,
        put: Callable[[bytes], None],
        *,
        stage: Callable[[str, bytes], None],
        create: Callable[[Sequence[str]], None],
    ) -> None:
        super().__init__(path, put)
        self._stage = stage
        self._create = create
        self._ours = uuid.uuid4().hex
        self._block_ids: list[str] = []

    def _send(self, part: bytes) -> None:
        # All ids of an object's blocks have one length.
        block_id = f"{self._ours}{len(self._block_ids):06}"
        self._stage(block_id, part)
        self._block_ids.append(block_id)

    def _complete(self, part: bytes) -> None:
        self._send(part)
        self._create(self._block_ids)

    def _discard(self) -> None:
        """There is no request for that."""
