"""Operations of many commits: groups of files are rewritten side by side, and committed as they are finished.

What one try of a group wrote counts once a record of the journal names the file that says so; that file and the map of
where rows went stand in a folder of their own beside the journal, so that another process that opens the table reads
no more for it than for any other operation. A group is committed whole or not at all. Where the table has moved so
that a group cannot be committed any more, that group is dropped and no other one.

Such an operation may run for hours, in a process that another machine cannot see: it is alive as long as it renews a
file in its folder (`heartbeat.py`). Whoever finds it dead commits the groups that are finished, and rewrites none.
"""
