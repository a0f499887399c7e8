"""Shared code of the labelled tasks: tables, texts as rows of tokens, and rows as batches."""
