"""The CronJob is one that Kubernetes takes, and its command does its work with what the pod has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import kubernetes_validate
import pytest
import yaml
from cronsim import CronSim

from iceberg_cli.fleet.policy_file import load_policy
from tests.schedulers.machine import (
    EXAMPLES,
    FOR_PEOPLE,
    RETRIED,
    Machine,
    assert_maintained,
    machine,
    state,
)

__all__ = ["machine"]

OLDEST = "1.31"  # where podFailurePolicy is stable


def documents(text: str) -> dict[str, Any]:
    """The objects of a file, by their kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


FILE = documents((EXAMPLES / "cronjob.yaml").read_text(encoding="utf-8"))
JOB = FILE["CronJob"]["spec"]["jobTemplate"]["spec"]
POD = JOB["template"]["spec"]
[CONTAINER] = POD["containers"]


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("kind", ["ConfigMap", "CronJob"])
def test_schema_of_kubernetes_takes_it(kind: str, version: str) -> None:
    kubernetes_validate.validate(FILE[kind], version, strict=True)


def test_key_that_kubernetes_does_not_know_is_noticed() -> None:
    wrong = FILE["CronJob"] | {"spec": FILE["CronJob"]["spec"] | {"timezone": "Etc/UTC"}}
    with pytest.raises(kubernetes_validate.ValidationError) as refused:
        kubernetes_validate.validate(wrong, OLDEST, strict=True)
    assert "'timezone' was unexpected" in refused.value.message


def test_it_runs_once_a_night_and_never_twice_at_once() -> None:
    spec = FILE["CronJob"]["spec"]
    assert next(CronSim(spec["schedule"], datetime(2026, 12, 31, tzinfo=UTC))).isoformat() == (
        "2026-12-31T01:30:00+00:00"
    )
    assert (spec["timeZone"], spec["concurrencyPolicy"]) == ("Etc/UTC", "Forbid")


def test_only_what_another_pod_can_mend_gets_another_one() -> None:
    [rule] = [rule for rule in JOB["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    codes = rule["onExitCodes"]
    assert (codes["operator"], codes["containerName"]) == ("In", CONTAINER["name"])
    assert set(codes["values"]) == FOR_PEOPLE
    assert not FOR_PEOPLE & RETRIED
    assert POD["restartPolicy"] == "Never", "podFailurePolicy needs it"


def test_every_folder_that_it_writes_to_is_mounted() -> None:
    mounted = {each["mountPath"]: each["name"] for each in CONTAINER["volumeMounts"]}
    assert mounted == {"/etc/iceberg-cli": "policy", "/var/cache": "cache", "/tmp": "tmp"}
    assert {each["name"] for each in POD["volumes"]} == set(mounted.values())
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    assert {each["name"]: each["value"] for each in CONTAINER["env"]} == {"XDG_CACHE_HOME": "/var/cache"}


@pytest.mark.deep  # the command of the crontab is alike
def test_its_command_maintains_the_tables(machine: Machine) -> None:
    before = state(machine)
    pod = documents(machine.example("cronjob.yaml"))
    machine.policy.write_text(pod["ConfigMap"]["data"]["policy.toml"].replace("prod.*.*", "prod.sales.*"))
    load_policy(str(machine.policy))
    [container] = pod["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    path = f"{machine.root}/opt/bin:/usr/local/bin:/usr/bin:/bin"  # as ENV of the Dockerfile has it
    cache = {"XDG_CACHE_HOME": str(machine.root / "cache")}
    ran = machine.run(["/usr/bin/env", *container["command"], *container["args"]], {"PATH": path} | cache)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert_maintained(machine, before)
