"""The copy of a vocabulary that a run keeps."""

import json
import pathlib

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.vocab import kept
from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import Vocabulary, load_vocabulary

PIECES = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'film')


def vocabulary(folder, *more):
  folder.mkdir()
  (folder / 'vocab.txt').write_text('\n'.join([*PIECES, *more]))
  return load_vocabulary(folder)


@mutation('vocabulary.save(partial)', 'vocabulary.save(directory)')
@mutation('partial.rename(path)', 'pass', file='bertjax/machine/durable.py')
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


@mutation('do_lower_case=self.lowercase)', 'do_lower_case=False)')
@pytest.mark.parametrize('kind', ['wordpiece', 'bpe', 'unigram'])
def test_a_copy_lowercases_as_was_asked(kind, tmp_path):
  TRAINERS[kind](
    ['The Cat sat', 'a DOG and the cat'] * 40, 22 if kind == 'unigram' else 300, False, tmp_path
  )
  for name in ('tokenizer.json', 'tokenizer_config.json'):
    (tmp_path / name).unlink(missing_ok=True)
  if kind == 'bpe':
    (tmp_path / 'tokenizer_config.json').write_text('{"tokenizer_class": "RobertaTokenizer"}')
  asked = load_vocabulary(tmp_path, lowercase=True)
  kept.keep(asked, tmp_path / 'kept')
  assert kept.holds(tmp_path / 'kept', asked)
  found = load_vocabulary(tmp_path / 'kept')  # as a run that begins with this one reads it
  assert found.lowercase
  for text in ('The CAT', 'a Dog'):
    assert found.encode_batch([text])[0].tolist() == asked.encode_batch([text])[0].tolist()


@mutation('if not holds(directory, read_vocabulary(path, lowercase)):', 'if True:')
def test_a_copy_that_is_there_was_looked_at_when_it_came(tmp_path):
  """A run that began with what is refused today goes on."""
  vocabulary(tmp_path / 'a')
  (tmp_path / 'a/tokenizer_config.json').write_text('{"do_basic_tokenize": false}')
  with pytest.raises(UserError, match='do_basic_tokenize=False'):
    kept.bring(str(tmp_path / 'a'), None, tmp_path / 'vocab')
  (tmp_path / 'a/tokenizer_config.json').unlink()
  kept.bring(str(tmp_path / 'a'), None, tmp_path / 'vocab')
  (tmp_path / 'a/tokenizer_config.json').write_text('{"do_basic_tokenize": false}')
  kept.bring(str(tmp_path / 'a'), None, tmp_path / 'vocab')


@mutation('if any(path.name not in own for path in directory.iterdir()):', 'if True:')
@mutation('      raise\n', '      pass\n', file='bertjax/vocab/kept.py')
@pytest.mark.parametrize('left', [(), ('vocab.json',), ('merges.txt', 'tokenizer_config.json')])
def test_a_folder_is_not_taken_for_what_should_be_in_it(tmp_path, left):
  """An empty folder, and a part of two files, are made whole; what is somebody's stays."""
  given, copy = tmp_path / 'given', tmp_path / 'vocab'
  given.mkdir()
  characters = [chr(i) for i in (*range(33, 127), *range(161, 173), *range(174, 256 + 68))]
  names = ['<s>', '<pad>', '</s>', '<unk>', '<mask>', *characters]
  (given / 'vocab.json').write_text(json.dumps({name: i for i, name in enumerate(names)}))
  (given / 'merges.txt').write_text('#version: 0.2\n')
  vocabulary = load_vocabulary(given)
  kept.keep(vocabulary, copy)
  for path in copy.iterdir():
    if path.name not in left:
      path.unlink()
  assert not kept.holds(copy, vocabulary)
  kept.keep(vocabulary, copy)
  assert (copy / 'merges.txt').read_bytes() == (given / 'merges.txt').read_bytes()
  assert load_vocabulary(copy).meta == vocabulary.meta and kept.holds(copy, vocabulary)

  (copy / 'vocab.json').rename(copy / 'notes.txt')
  before = {path.name: path.read_bytes() for path in copy.iterdir()}
  with pytest.raises(UserError, match='expected one of tokenizer.json'):
    kept.keep(vocabulary, copy)
  assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
