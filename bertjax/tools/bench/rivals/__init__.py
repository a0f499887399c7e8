"""The model of a family in PyTorch `transformers`: one file each, `config.model.family`."""
