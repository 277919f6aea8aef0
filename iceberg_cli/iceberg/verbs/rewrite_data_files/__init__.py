"""rewrite-data-files: rows of small files, and of files with deletes, in few files that have none."""
