"""Paths as tables record them: their canonical spelling, path keys, and a table's own folders. Strings only, no I/O.

Paths are the literal strings that manifests record. They are never percent-decoded: `k=50%25` is a folder's
real name. Three questions have three answers:

- `canonical`: the storage key, one spelling for one object, used to read and to delete;
- `path_key`: the key with scheme and authority dropped, used to decide what stays. It is coarser on purpose:
  where `s3://`, `s3a://` or `hdfs:/` spell one object in two ways the file is kept, and a false match
  between two buckets keeps a file that could have gone;
- `Roots.own`: is a canonical key inside the table's own locations?
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

# Of an Iceberg table's metadata file.
METADATA_SUFFIXES = (".metadata.json", ".metadata.json.gz")

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(//([^/]*))?")
_SCHEME_PATTERN = r"^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?"
_ALIASES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("abfss", "abfs", "wasbs", "wasb"), "abfss"),
}
# Local disks resolve dot segments, as may a proxy before an object store: clients send them as they are, all else of
# a key encoded once more. So %2F, a backslash or a U+FF0F separates nothing there. No local name has a NUL.
_DOT_SEGMENT = r"(?:^|/)\.{1,2}(?:/|END)|\x00"
_LITERAL_SCHEMES = frozenset({"file", "s3", "gs"})
# How other storages read these is not known here.
_ODD = r"|[\\\x01-\x1f\x7f]|\.(?:/|END)"
_SUSPICIOUS_PATTERN = _DOT_SEGMENT.replace("END", r"\z")
_SUSPICIOUS = re.compile(_DOT_SEGMENT.replace("END", r"\Z"))
_SUSPICIOUS_ELSEWHERE = re.compile((_DOT_SEGMENT + _ODD).replace("END", r"\Z"))
_HINT = "/version-hint.text"
OPERATIONS_FOLDER = "_iceberg_cli/ops"  # of a table: one folder for each operation
HISTORY_FOLDER = "_iceberg_cli/history"  # likewise, of records of those that are over
GROUPS_FOLDER = "_iceberg_cli/groups"  # likewise, for what tries of groups leave for their operation
_RECORD = "/_iceberg_cli/"
# Azure reads a backslash as a slash, and names end before their last dots there, those of folders too. By its schemes
# wasb and wasbs Hadoop stores such a dot as [[.]].
_DROPPED_BY_AZURE = re.compile(r"(?:\.|\[\[\.\]\])+(?=/|\Z)")
_LOCAL_NOISE = re.compile(r"/(?:\.?/)+")
_END_NOISE_PATTERN = r"(/\.?)+\z"
_END_NOISE = re.compile(r"(?:/\.?)+\Z")
_SLASH, _DOT = b"/."


def scheme_of(path: str) -> str:
    """The scheme in lower case; "file" for a plain path, "s3" for its aliases, "abfss" for those of Azure."""
    match = _SCHEME.match(path)
    if match is None:
        return "file"
    scheme = match.group(1).lower()
    return _ALIASES.get(scheme, scheme)


def canonical(path: str) -> str:
    """The one spelling of the object that `path` names.

    Args:
        path: `/a/b`, `file:/a/b`, `file:///a/b`, `s3a://bucket/key`, or any `scheme://authority/key`.

    Returns:
        `/a/b` for local files, with repeated slashes and `/./` collapsed and `..` left alone; `s3://bucket/key` with
        the key verbatim; on Azure `abfss://container@account.dfs.core.windows.net/key`, whichever of its schemes and
        which of the account's two hosts, `dfs` and `blob`, are named; anything else with its scheme in lower case.
    """
    match = _SCHEME.match(path)
    if match is None:
        return _LOCAL_NOISE.sub("/", path) if path.startswith(("/", "./", "../")) else path
    scheme, rest = scheme_of(path), path[match.end() :]
    if scheme == "file":
        return _LOCAL_NOISE.sub("/", rest)
    if scheme == "abfss" and match.group(3):
        return f"{scheme}://{_azure_authority(match.group(3))}{rest}"
    return f"{scheme}:{match.group(2) or ''}{rest}"


def _azure_authority(authority: str) -> str:
    """A container and the host of its account, as `dfs` and in lower case; a container alone as it is."""
    container, at, host = authority.partition("@")
    labels = host.lower().split(".")
    if "blob" in labels[1:]:
        labels[labels.index("blob", 1)] = "dfs"
    return f"{container}{at}{'.'.join(labels)}"


def without_end_noise(path: str) -> str:
    """A path without the slashes and `/.` at its end, which name the same folder."""
    return _END_NOISE.sub("", path)


def path_key(path: str) -> str:
    """`path` without scheme and authority, with repeated slashes and `/./` collapsed, and none of these at its end.

    On Azure a backslash is a slash, and a name ends before its last dots.
    """
    if scheme_of(path) == "abfss":
        key = _DROPPED_BY_AZURE.sub("", _SCHEME.sub("", path.replace("\\", "/")))
    else:
        key = _SCHEME.sub("", path)
    return _END_NOISE.sub("", _LOCAL_NOISE.sub("/", key))


def is_suspicious(path: str) -> bool:
    """Whether the path's storage could resolve it to another object than the key that it spells."""
    match = _SCHEME.match(path)
    odd = _SUSPICIOUS if scheme_of(path) in _LITERAL_SCHEMES else _SUSPICIOUS_ELSEWHERE
    return odd.search(path[match.end() :] if match else path) is not None


def canonical_column(paths: Any) -> Any:
    """`canonical` over an Arrow string array or chunked array of any length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(paths):
        # Most often all paths are below one place and spelled as they should be.
        match = _SCHEME.match(paths[0].as_py())
        prefix = match.group(0) if match else ""
        plain = match is None or (match.group(2) is not None and prefix == canonical(prefix))
        if plain and pc.all(pc.starts_with(paths, prefix + "/")).as_py():
            local_noise = match is None and _may_be_noisy(paths)
            if not local_noise:
                return paths.cast(pa.string())
    return pa.array([canonical(path) for path in paths.to_pylist()], pa.string())


def path_key_column(paths: Any) -> Any:
    """`path_key` over an Arrow string array, vectorised.

    Args:
        paths: n strings without nulls.

    Returns:
        n strings.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(paths) == 0:
        return paths
    match = _SCHEME.match(paths[0].as_py())
    prefix = match.group(0) if match else ""
    # Only a whole authority may be cut off: s3://lake is no prefix of s3://lake-data/..., nor file: of file://host/...
    if (match is None or match.group(2) is not None) and pc.all(pc.starts_with(paths, prefix + "/")).as_py():
        keys = pc.utf8_slice_codeunits(paths, len(prefix)) if prefix else paths
        is_azure = scheme_of(prefix) == "abfss"
    else:
        keys = pc.replace_substring_regex(paths, _SCHEME_PATTERN, "")
        is_azure = pc.any(pc.match_substring_regex(paths, "^(?i:abfss?|wasbs?):")).as_py()
    if is_azure and (may_have(paths, b"\\") or _may_end_with(keys, b".]")):
        return pa.array([path_key(path) for path in paths.to_pylist()], paths.type)
    if _may_be_noisy(keys):
        keys = pc.replace_substring_regex(keys, r"/(\.?/)+", "/")
    if pc.any(pc.or_(pc.ends_with(keys, "/"), pc.ends_with(keys, "/."))).as_py():
        keys = pc.replace_substring_regex(keys, _END_NOISE_PATTERN, "")
    return keys


def _may_be_noisy(paths: Any) -> bool:
    """False only if no path has `//` or `/./` in it. Two paths that touch in memory can look like one that has."""
    for data in _bytes_of(paths):
        slash = data == _SLASH
        if (slash[1:] & slash[:-1]).any() or (slash[2:] & slash[:-2] & (data[1:-1] == _DOT)).any():
            return True
    return False


def folder_column(paths: Any) -> Any:
    """The part before the last slash of each of n strings; all of one that has none."""
    import pyarrow.compute as pc

    return pc.list_element(pc.split_pattern(paths, "/", max_splits=1, reverse=True), 0)


def file_name_column(paths: Any) -> Any:
    """What is compared where names decide: the last segment of each of n strings, coarser than every path.

    Percent escapes are decoded once, letters are lower case in Unicode's form NFC, and dots at the end are left out, so
    that no spelling by which a storage may have a file hides it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pc.replace_substring_regex(paths, r"(?s)^.*/", "")
    if may_have(names, b"%"):
        decoded = [None if name is None else unquote(name) for name in names.to_pylist()]
        names = pa.array(decoded, names.type)
    return pc.utf8_rtrim(pc.utf8_lower(pc.utf8_normalize(names, form="NFC")), characters=".")


def common_folders(folders: Sequence[str]) -> tuple[str, ...]:
    """For each bucket or disk of canonical folders, the deepest folder that contains all of its folders, in order."""
    common: dict[str, list[str]] = {}
    for folder in folders:
        match = _SCHEME.match(folder)
        store = match.group(0) if match else ""
        parts = folder[len(store) :].split("/")
        known = common.get(store, parts)
        differs = (
            place for place, (one, other) in enumerate(zip(known, parts, strict=False)) if one != other
        )
        common[store] = known[: next(differs, min(len(known), len(parts)))]
    return tuple(store + "/".join(parts) or "/" for store, parts in sorted(common.items()))


def may_have(paths: Any, characters: bytes) -> bool:
    """False only if none of n strings has one of some ASCII characters."""
    return any((data == character).any() for data in _bytes_of(paths) for character in characters)


def may_begin_with(paths: Any, characters: bytes) -> bool:
    """False only if no name between slashes in n strings begins with one of some ASCII characters."""
    import pyarrow.compute as pc

    for character in characters:
        if pc.any(pc.starts_with(paths, chr(character))).as_py():
            return True
        if any(((data[:-1] == _SLASH) & (data[1:] == character)).any() for data in _bytes_of(paths)):
            return True
    return False


def _may_end_with(paths: Any, characters: bytes) -> bool:
    """False only if no name between slashes in n strings ends with one of some ASCII characters."""
    import pyarrow.compute as pc

    for character in characters:
        if pc.any(pc.ends_with(paths, chr(character))).as_py():
            return True
        if any(((data[1:] == _SLASH) & (data[:-1] == character)).any() for data in _bytes_of(paths)):
            return True
    return False


def _may_mean_more(paths: Any) -> bool:
    """False only if no local path or key of S3 is suspicious or, but for how it ends, a table's own record."""
    return may_have(paths, b"\0") or may_begin_with(paths, b"._")


def _bytes_of(paths: Any) -> Iterator[Any]:
    """The UTF-8 bytes of an Arrow string array, one path after the other; nulls may have some."""
    import numpy as np
    import pyarrow as pa

    for array in paths.chunks if isinstance(paths, pa.ChunkedArray) else [paths]:
        _, offsets, data = array.buffers()
        if not len(array) or data is None:
            continue
        width = np.int64 if pa.types.is_large_string(array.type) else np.int32
        ends = np.frombuffer(offsets, width)[[array.offset, array.offset + len(array)]].tolist()
        yield np.frombuffer(data, np.uint8)[ends[0] : ends[1]]


def whole_store(location: str) -> str | None:
    """The whole bucket that a location names, such as `s3://bucket`, or `/` for a local disk; None for a folder."""
    folder = canonical(location).rstrip("/")
    if not folder and location:
        return "/"
    match = _SCHEME.fullmatch(folder)
    return folder if match is not None and match.group(3) else None


@dataclass(frozen=True, slots=True)
class Roots:
    """The canonical folders in which a table's files may be deleted, each without a trailing slash."""

    folders: tuple[str, ...]

    @classmethod
    def of(cls, locations: Sequence[str], *, allowed: Sequence[str] = ()) -> Roots:
        """Roots from a table's locations.

        Args:
            locations: of the table; those that name a whole bucket, `/` or nothing are left out.
            allowed: folders that the operator names besides; a bucket may be among them, and no local disk.
        """
        kept: list[str] = []
        for location in [*locations, *allowed]:
            folder = canonical(location).rstrip("/")
            bucket = location in allowed and folder == whole_store(location)
            if not is_suspicious(location) and (bucket or _depth(folder) >= 1) and folder not in kept:
                kept.append(folder)
        return cls(tuple(kept))

    def inside_column(self, paths: Any) -> Any:
        """Which of n canonical paths, an Arrow string array, begin with one of the folders; n booleans."""
        import pyarrow as pa
        import pyarrow.compute as pc

        inside = pa.repeat(value=False, size=len(paths))
        for folder in self.folders:
            inside = pc.or_(inside, pc.starts_with(paths, f"{folder}/"))
        return inside

    def own(self, path: str) -> bool:
        """Whether a canonical path is inside one of the folders, means what it says, and is no table's own record.

        Version hints and this tool's journals are never deleted as content; metadata files only by their own rule. A
        path that ends in a slash names a folder, or on a local disk a file by another name than its own.
        """
        inside = any(path.startswith(folder + "/") for folder in self.folders) and not path.endswith("/")
        record = path.endswith(_HINT) or _RECORD in path
        return inside and not is_suspicious(path) and not record

    def own_column(self, paths: Any) -> Any:
        """`own` over an Arrow string array of canonical paths.

        Returns:
            n booleans.
        """
        import pyarrow.compute as pc

        inside = pc.and_(self.inside_column(paths), pc.invert(pc.ends_with(paths, "/")))
        elsewhere = [folder for folder in self.folders if scheme_of(folder) not in _LITERAL_SCHEMES]
        if not (elsewhere or _may_mean_more(paths)):
            return pc.and_(inside, pc.invert(pc.ends_with(paths, _HINT)))
        keys = pc.replace_substring_regex(paths, _SCHEME_PATTERN, "")
        kept = pc.or_(pc.ends_with(paths, _HINT), pc.match_substring(paths, _RECORD))
        kept = pc.or_(kept, pc.match_substring_regex(keys, _SUSPICIOUS_PATTERN))
        for folder in elsewhere:
            odd = pc.match_substring_regex(keys, _ODD.removeprefix("|").replace("END", r"\z"))
            kept = pc.or_(kept, pc.and_(pc.starts_with(paths, f"{folder}/"), odd))
        return pc.and_(inside, pc.invert(kept))


def _depth(folder: str) -> int:
    match = _SCHEME.match(folder)
    rest = folder[match.end() :] if match else folder
    if not match and not folder.startswith("/"):
        return 0
    return len([segment for segment in rest.split("/") if segment])
