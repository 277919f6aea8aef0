"""Run by the Python of Dagster's environment: `run_dagster.py FILE POLICY` prints what came of each op, as JSON."""

from __future__ import annotations

import json
import runpy
import sys
from collections import Counter


def main(file: str, policy: str) -> None:
    """Run the one job of a file by `execute_in_process`."""
    from dagster import DagsterInstance

    names = runpy.run_path(file)
    with DagsterInstance.ephemeral() as instance:
        result = names["maintain_tables"].execute_in_process(
            resources={"settings": names["Settings"](policy=policy)}, instance=instance, raise_on_error=False
        )
        events = [(each.step_key, each.event_type_value) for each in result.all_events if each.step_key]
    tries = Counter(key for key, kind in events if kind in {"STEP_START", "STEP_RESTARTED"})
    ends = {key: kind for key, kind in events if kind in {"STEP_SUCCESS", "STEP_FAILURE", "STEP_SKIPPED"}}
    found = {key: {"state": ends.get(key), "tries": tries[key]} for key in tries}
    print(json.dumps({"success": result.success, "ops": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
