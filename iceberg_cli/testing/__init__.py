"""For tests: writers and readers of tables, suites for plug-ins, a crash simulator, a catalog and a storage in memory.

`conformance/` has what every storage, catalog, engine and Delta log promises, as classes that an adapter's author
subclasses; only it needs pytest. `crash/` stops a process around any of its effects. What writes and reads tables here
shares no code with what the package does that with.
"""
