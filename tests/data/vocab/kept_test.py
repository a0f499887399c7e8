"""The copy of a vocabulary that a run keeps."""

import pathlib

import pytest
from mutation import mutation

from bertjax.data.vocab import kept
from bertjax.data.vocab.vocabulary import Vocabulary, load_vocabulary

PIECES = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'film')


def vocabulary(folder, *more):
  folder.mkdir()
  (folder / 'vocab.txt').write_text('\n'.join([*PIECES, *more]))
  return load_vocabulary(folder)


@mutation(
  'kept: a copy that is cut short stands in the place of the vocabulary',
  'bertjax/data/vocab/kept.py',
  'vocabulary.save(partial)',
  'vocabulary.save(directory)',
)
@mutation(
  'kept: the copy stays what it was',
  'bertjax/data/vocab/kept.py',
  'partial.rename(directory)',
  'pass',
)
def test_a_copy_is_whole_or_the_one_before_it(tmp_path, monkeypatch):
  first, second = vocabulary(tmp_path / 'a'), vocabulary(tmp_path / 'b', 'cinema')
  kept.keep(first, tmp_path / 'vocab')
  assert load_vocabulary(tmp_path / 'vocab').meta == first.meta

  def cut_short(self: Vocabulary, directory: pathlib.Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / 'vocab.txt').write_text('[PAD]')
    raise KeyboardInterrupt

  with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
    patched.setattr(Vocabulary, 'save', cut_short)
    kept.keep(second, tmp_path / 'vocab')
  assert load_vocabulary(tmp_path / 'vocab').meta == first.meta
  kept.keep(second, tmp_path / 'vocab')
  assert load_vocabulary(tmp_path / 'vocab').meta == second.meta
  assert sorted(path.name for path in tmp_path.iterdir()) == ['a', 'b', 'vocab']
