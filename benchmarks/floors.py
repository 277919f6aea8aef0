"""Physical floors: programs that do the least that anybody must do, for processes of their own.

Each reads the files that the file named by its argument names, one a line.
"""

from __future__ import annotations

# Reads and inflates manifests.
MANIFESTS = """
import sys
from isal import isal_zlib
from iceberg_cli.iceberg.avro.container import read_container
for path in open(sys.argv[1]).read().split():
    with open(path, "rb") as file:
        read_container(file.read(), path)
"""

_UNITED = r"""
import json, os, struct, sys, zlib
from pyroaring import BitMap64
united = {}
"""
# One Puffin file as Java would write it: run-optimised bitmaps, each framed with its CRC, a footer that lists all
# blobs, flushed.
_WRITE = r"""
parts, blobs, at = [b"PFA1"], [], 4
for name, bitmap in united.items():
    bitmap.run_optimize()
    body = b"\xd1\xd39d" + bitmap.serialize()
    parts += [struct.pack(">I", len(body)), body, struct.pack(">I", zlib.crc32(body))]
    properties = {"referenced-data-file": name, "cardinality": str(len(bitmap))}
    blobs.append({"type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1,
                  "offset": at, "length": len(body) + 8, "properties": properties})
    at += len(body) + 8
footer = json.dumps({"blobs": blobs}).encode()
parts += [b"PFA1", footer, struct.pack("<I", len(footer)), bytes(4), b"PFA1"]
with open(sys.argv[1] + ".puffin", "wb") as file:
    file.write(b"".join(parts))
    file.flush()
    os.fsync(file.fileno())
"""

# Reads the deletion vectors of Puffin files, unites them by data file, and writes one Puffin file.
PUFFINS = (
    _UNITED
    + r"""
for path in open(sys.argv[1]).read().split():
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[-12:-8], "little")
    for blob in json.loads(data[-12 - size : -12])["blobs"]:
        start, end = blob["offset"], blob["offset"] + blob["length"]
        bitmap = BitMap64.deserialize(data[start + 8 : end - 4])
        name = blob["properties"]["referenced-data-file"]
        if name in united:
            united[name] |= bitmap
        else:
            united[name] = bitmap
"""
    + _WRITE
)

# Reads position-delete files, unites their positions by data file, and writes one Puffin file.
POSITIONS = (
    _UNITED
    + r"""
from array import array
import numpy as np
import pyarrow.parquet as pq
for path in open(sys.argv[1]).read().split():
    table = pq.read_table(path, columns=["file_path", "pos"])
    names = table["file_path"].combine_chunks().dictionary_encode()
    codes, positions = names.indices.to_numpy(), table["pos"].to_numpy().astype(np.uint64)
    for code, name in enumerate(names.dictionary.to_pylist()):
        bitmap = BitMap64(array("Q", positions[codes == code].tobytes()))  # an array is taken whole
        united[name] = united[name] | bitmap if name in united else bitmap
"""
    + _WRITE
)

# Reads the names in position-delete files.
NAMES = r"""
import sys
import pyarrow.parquet as pq
names = set()
for path in open(sys.argv[1]).read().split():
    names.update(pq.ParquetFile(path).read(columns=["file_path"])["file_path"].unique().to_pylist())
"""

# Reads the log of the Delta table that its argument is, which alone tells what is live, and all live deletion vectors;
# writes these into one file, and the commit that names it. Names the table wrote are relative ("u"), one classic
# checkpoint is there, and no statistics need a second look.
DELTA_VECTORS = r"""
import glob, json, os, struct, sys, zlib
import pyarrow.parquet as pq
from pyroaring import BitMap64
from iceberg_cli.testing.delta_vectors import vector_file
root = sys.argv[1]
checkpoint = max(glob.glob(f"{root}/_delta_log/*.checkpoint.parquet"))
column = pq.ParquetFile(checkpoint).read(columns=["add"])["add"].drop_null()
adds = {add["path"]: add for add in column.to_pylist(maps_as_pydicts="strict")}
commits = [path for path in sorted(glob.glob(f"{root}/_delta_log/*.json")) if path[-25:] > checkpoint[-39:]]
for path in commits:
    with open(path, "rb") as file:
        for line in file:
            action = json.loads(line)
            if "add" in action:
                adds[action["add"]["path"]] = action["add"]
by_file = {}
for add in adds.values():
    if add.get("deletionVector"):
        by_file.setdefault(vector_file(add["deletionVector"], root), []).append(add)
parts, lines, end = [b"\x01"], [], 1
for path, mine in by_file.items():
    with open(path, "rb") as file:
        data = file.read()
    for add in mine:
        vector = add["deletionVector"]
        at, size = vector["offset"], vector["sizeInBytes"]
        body = data[at + 4 : at + 4 + size]
        if zlib.crc32(body) != int.from_bytes(data[at + 4 + size : at + 8 + size], "big"):
            raise ValueError(add)
        bitmap = BitMap64.deserialize(body[4:])
        bitmap.run_optimize()
        body = b"\xd1\xd39d" + bitmap.serialize()
        parts += [struct.pack(">I", len(body)), body, struct.pack(">I", zlib.crc32(body))]
        new = {**vector, "offset": end, "sizeInBytes": len(body), "pathOrInlineDv": "0" * 20}
        removed = {"path": add["path"], "deletionTimestamp": 0, "dataChange": False, "deletionVector": vector}
        lines += [json.dumps({"remove": removed}), json.dumps({"add": {**add, "deletionVector": new}})]
        end += len(body) + 8
for path, data in (("merged.bin", b"".join(parts)), ("merged.json", "\n".join(lines).encode())):
    with open(f"{root}.{path}", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
print(len(lines) // 2)
"""
