"""The jars that Spark needs in tests and benchmarks, by checksum, from Maven Central into a folder of their own.

`python -m tests.spark_jars` has all that tests need, REST servers' too, before the first test asks for one.

Spark's own resolution (`spark.jars.packages`) prefers what a home folder's Maven repository describes, even where the
jars are not beside the descriptions, and remembers that in a cache that all programs share. These jars depend on
nothing that Spark does not bring.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

FOLDER: Final = Path(__file__).resolve().parents[1] / ".cache" / "jars"
CENTRAL: Final = "https://repo1.maven.org/maven2"
STALLS_S = 30


@dataclass(frozen=True, slots=True)
class Jar:
    """One file of Maven Central."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""
    ending: str = "jar"

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}{self.classifier and f'-{self.classifier}'}.{self.ending}"

    @property
    def path(self) -> str:
        """Its place in a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.name}"


ICEBERG: Final = Jar("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0",
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82")  # fmt: skip
SQLITE: Final = Jar("org.xerial", "sqlite-jdbc", "3.50.3.0",
        "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08")  # fmt: skip
AWS: Final = Jar("org.apache.iceberg", "iceberg-aws-bundle", "1.12.0",
        "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957")  # fmt: skip
# Hadoop's file system on S3, of the version of Spark's own Hadoop. It is built for the whole SDK, of 600 MB; of what it
# needs `AWS` lacks two modules, which are of the version that `AWS` holds.
S3A: Final = (
    AWS,
    Jar("org.apache.hadoop", "hadoop-aws", "3.4.2",
        "d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9"),
    Jar("software.amazon.awssdk", "apache-client", "2.54.17",
        "0b00ae3d55c3d1213ca47b5651dc4c2a0080fc9b6192dde3d53c3da6c1811bcb"),
    Jar("software.amazon.awssdk", "s3-transfer-manager", "2.54.17",
        "7bef0ea4efd5e0860bab63e08317040951edb51b72a5be734284c28b8324ab87"),
)  # fmt: skip
DELTA: Final = (
    Jar("io.delta", "delta-spark_4.1_2.13", "4.4.0",
        "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10"),
    Jar("io.delta", "delta-storage", "4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    Jar("io.delta", "delta-kernel-api", "4.4.0",
        "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11"),
    Jar("io.delta", "delta-kernel-defaults", "4.4.0",
        "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b"),
    Jar("io.delta", "delta-kernel-unitycatalog", "4.4.0",
        "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa"),
    Jar("io.unitycatalog", "unitycatalog-client", "0.6.0",
        "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19"),
    Jar("io.unitycatalog", "unitycatalog-hadoop", "0.6.0",
        "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150"),
    Jar("com.fasterxml.jackson.datatype", "jackson-datatype-jdk8", "2.13.5",
        "e58761751fea8a00dc626aae1c5f1be38c5cfd487aeb333d933a4ab5f5a73c55"),
    Jar("javax.annotation", "javax.annotation-api", "1.3.2",
        "e04ba5195bcd555dc95650f7cc614d151e4bcd52d29a10b8aa2197f3ab89ab9b"),
)  # fmt: skip


class NoJar(Exception):
    """A jar is neither in the folder nor to be had from a repository."""


def spark_jars(
    jars: Sequence[Jar], *, folder: Path = FOLDER, environment: Mapping[str, str] = os.environ
) -> str:
    """The value of `spark.jars`, in the order of the class path; what is not in the folder yet is downloaded.

    Any number of processes may do this at once: a file appears in the folder whole, or not at all. The environment
    names a mirror, the home folder and the proxy, see `repositories` and `_proxies`.

    Raises:
        NoJar: one cannot be downloaded or kept, with the reason of each repository.
    """
    return ",".join(str(_kept(jar, folder, environment)) for jar in jars)


def repositories(environment: Mapping[str, str]) -> list[str]:
    """Where to look for jars, in this order: Spark's own variable, Maven's mirrors of Central, Central."""
    named = [environment[key] for key in ("DEFAULT_ARTIFACT_REPOSITORY",) if environment.get(key)]
    return [url.rstrip("/") for url in dict.fromkeys([*named, *_mirrors(environment), CENTRAL])]


def _mirrors(environment: Mapping[str, str]) -> Iterator[str]:
    try:
        root = ET.parse(Path(environment.get("HOME", "~")).expanduser() / ".m2" / "settings.xml")
    except (OSError, ET.ParseError, RuntimeError):
        return
    for mirror in root.iterfind(".//{*}mirror"):
        of, url, blocked = (mirror.findtext(f"{{*}}{name}", "") for name in ("mirrorOf", "url", "blocked"))
        names = {name.strip() for name in of.split(",")}
        if names & {"*", "central", "external:*"} and "!central" not in names and blocked.strip() != "true":
            yield url.strip()


def _proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """The proxies that a JVM is told, by scheme, where the usual variables name none."""
    options = " ".join(environment.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))
    stated = dict(re.findall(r"-D(https?\.proxy(?:Host|Port))=(\S+)", options))
    found = {
        scheme: f"http://{stated[f'{scheme}.proxyHost']}:{stated.get(f'{scheme}.proxyPort', default)}"
        for scheme, default in (("http", "80"), ("https", "443"))
        if f"{scheme}.proxyHost" in stated
    }
    return found | urllib.request.getproxies()


def _kept(jar: Jar, folder: Path, environment: Mapping[str, str]) -> Path:
    target = folder / jar.name
    try:
        if target.is_file() and _sha256(target) == jar.sha256:
            return target
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as own:
            new = Path(own) / jar.name
            _download(jar, new, environment)
            new.replace(target)
    except OSError as error:
        raise NoJar(f"Cannot keep {jar.name} in {folder}: {error.strerror or error}.") from error
    return target


def _download(jar: Jar, target: Path, environment: Mapping[str, str]) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(_proxies(environment)))
    reasons = []
    for repository in repositories(environment):
        url = f"{repository}/{jar.path}"
        try:
            with opener.open(url, timeout=STALLS_S) as answer:
                data = answer.read()
        except (OSError, HTTPException, ValueError) as error:
            reasons.append(f"{url}: {error}")
            continue
        found = hashlib.sha256(data).hexdigest()
        if found == jar.sha256:
            target.write_bytes(data)
            return
        reasons.append(f"{url}: {len(data):,} bytes with SHA-256 {found} instead of {jar.sha256}")
    raise NoJar(f"Cannot download {jar.name}: {'; '.join(reasons)}.")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Download what is missing."""
    from tests.rest_servers import DRIVERS, JARS, S3_JARS

    spark_jars([ICEBERG, SQLITE, *S3A, *DELTA, *JARS, *S3_JARS, *DRIVERS])


if __name__ == "__main__":
    main()
