"""Who listens to a run: the display of progress, the log file, the metrics file and the span of a trace."""
