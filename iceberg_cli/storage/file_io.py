"""The `FileIO` that a catalog names: what stands between Iceberg and the bytes of its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_JAVA: Final = "io-impl"
_PYTHON: Final = "py-io-impl"
# Those of Iceberg and PyIceberg: files are what is stored at their paths.
_KNOWN: Final = {
    _JAVA: frozenset(
        f"org.apache.iceberg.{name}"
        for name in (
            "aliyun.oss.OSSFileIO",
            "aws.s3.S3FileIO",
            "azure.adlsv2.ADLSFileIO",
            "dell.ecs.EcsFileIO",
            "gcp.gcs.GCSFileIO",
            "hadoop.HadoopFileIO",
            "inmemory.InMemoryFileIO",
            "io.ResolvingFileIO",
        )
    ),
    _PYTHON: frozenset(f"pyiceberg.io.{name}" for name in ("fsspec.FsspecFileIO", "pyarrow.PyArrowFileIO")),
}

OPTIONS: Final = tuple(_KNOWN)


def unknown_reason(options: Mapping[str, str]) -> str | None:
    """Why nothing may be written or deleted where a `FileIO` of somebody's own is named, or None."""
    for option, known in _KNOWN.items():
        name = options.get(option)
        if name and name not in known:
            return (
                f"{option}={name} is no FileIO of Iceberg's own: it may encrypt files, or mean something else by a"
                f" deletion. `--storage-option {option}=` is your word that files are kept as they are, and deleted"
            )
    return None
