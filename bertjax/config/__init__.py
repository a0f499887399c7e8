"""The config of a run: every key, its type and source, and the command line."""
