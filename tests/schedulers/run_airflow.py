"""Run by the Python of Airflow's environment: `run_airflow.py DAG_FILE POLICY` prints what came of it, as JSON."""

from __future__ import annotations

import json
import sys


def main(file: str, policy: str) -> None:
    """Run the one DAG of a file by `dag.test()`."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=file)
    assert not bag.import_errors, bag.import_errors
    [dag] = bag.dags.values()
    run = dag.test(run_conf={"policy": policy})
    found = [
        {
            "task": each.task_id,
            "name": each.rendered_map_index,
            "state": str(each.state),
            "tries": each.try_number,
        }
        for each in run.get_task_instances()
    ]
    print(json.dumps({"state": str(run.state), "tasks": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
