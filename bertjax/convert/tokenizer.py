"""Placeholder until the branch with the tokenizer lands."""

import pathlib


def read(path):
  for name in ('tokenizer.json', 'vocab.txt', 'vocab.json', 'spiece.model'):
    if (path / name).exists():
      return path
  return None


def write(vocabulary, directory, family, max_length):
  vocabulary.save(pathlib.Path(directory))


def differences(vocabulary, directory):
  return []
