"""What engines answer in tests, kept in files: most runs need no JVM for it, and deep ones ask the engine again.

A test that takes the fixtures `lake`, `hadoop`, `lakes`, `written` or `delta_lake` is there twice:

- `recorded`, always: each thing that it asks of Spark is answered from `tests/recorded/`, and what Spark wrote is put
  into the table's folder, byte for byte. Before each answer the folder is held against the one that Spark was asked of:
  files that are known by name and content are equal, and the others, which our program or the test wrote, have the same
  canonical form. Where they differ the test fails: nobody knows what Spark would say of that.
- `live`, deep: the same test on the same tables asks Spark, and each answer is compared with the one on record.

    .venv/bin/pytest tests/iceberg/verbs/merge_dvs -m deep --record

records what is missing or differs in its canonical form, and leaves the other files alone; where a test fails because
our program writes something else than it did, delete its file first. Iceberg's metadata holds
absolute paths, so the tables of Iceberg are written below one folder, `FIXED`, and put back there: sizes, lengths,
offsets and checksums are those that Spark wrote. One process at a time can have that folder.

- `canonical`: what a file says without what is drawn or measured: UUIDs, ids and times are numbered.
- `folder_state`: the files of a table by name and content, and their ages.
- `archives`: zip files of contents, each once.
- `transcript`: what one test asked, in its order.
- `plugin`: the option, and which of the two a test is.
"""
