"""Runs on a language whose best possible losses are known, and the losses."""
