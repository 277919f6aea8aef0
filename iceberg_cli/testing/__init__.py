"""Writers of tables and a catalog in memory, for tests and the demo."""
