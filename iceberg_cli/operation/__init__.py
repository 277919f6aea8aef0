"""Carries plans out, stage -> bind -> commit -> sweep: the only code that changes tables and deletes files.

1. Write order: data and delete files, manifests, manifest list, metadata, pointer. Each references only what is
   already durable. Delete order: after the pointer, bottom-up.
2. Outcomes are three. `Unknown` deletes nothing. Files are discarded only after a proved refusal.
3. Deleted is a subset of shown AND of unreachable now. Reachability is by path.
4. Before a commit, what it keeps has been read whole and counted (`iceberg/commit/verification.py`). Marking fails
   closed: a retained manifest list or manifest that cannot be read whole stops the run.
5. One `as_of_ms` per run, stored in the plan, reused by every replan.
6. A replan that would remove more than was shown stops the run (`StalePlan`).
7. Unknown fields and properties survive every rewrite of somebody's metadata.
8. Interlocks are refusals, not warnings: of the effect, not of the view.
9. Intent is journalled before each effect, the outcome after it.
10. Rows that are rewritten are proved equal before they are committed, and states are compared, not histories.
"""
