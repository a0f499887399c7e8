"""What the kinds of tasks share: tables, texts as rows of tokens, and rows as batches."""
