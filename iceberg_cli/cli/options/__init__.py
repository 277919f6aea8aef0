"""The options of commands: what the command line, variables and the configuration file give, and the texts of help."""
