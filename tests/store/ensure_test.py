"""What a run is told when its config names no data, or two kinds of it."""

import pathlib
import shutil

import forks
import pytest
from mutation import mutation

from bertjax.config import defaults
from bertjax.examples import readers
from bertjax.store import ensure as ensure_store
from bertjax.store.reader import open_store
from bertjax.vocab.vocabulary import load_vocabulary


def ensure(workdir, **overrides):
  data = defaults.base().data
  data.update_from_flattened_dict(overrides)
  return readers.of(data).ensure(data, 0, str(workdir))


@pytest.fixture
def forked(monkeypatch):
  """Has the children of a run fork from a server that has imported what they import."""

  def run(command, env):
    module, *arguments = command[command.index('-m') + 1 :]
    return forks.run(module, *arguments, env=env).returncode

  monkeypatch.setattr(ensure_store.children, 'run', run)


@pytest.mark.parametrize(
  'overrides, message',
  [
    ({}, 'no data: set config.data.store'),
    ({'input': 'a.txt', 'mixture': 'python_docs'}, 'set one of'),
    ({'input': 'a.txt'}, 'no vocabulary: set config.data.vocab'),
    ({'input': 'a.txt', 'reader': 'sequio'}, "did you mean 'seqio'"),
    pytest.param(
      {'mixture': 'python_docs_bert_pairs', 'heldout': 'b.txt', 'reader': 'seqio'},
      "a split 'validation'",
      marks=pytest.mark.full,  # it imports TensorFlow
    ),
    (
      {'store': 's', 'heldout': 'b.txt'},
      'prepare --input=b.txt --vocab=s/vocab --output=s/heldout',
    ),
  ],
)
def test_mistakes_are_refused_before_anything_is_written(tmp_path, overrides, message):
  with pytest.raises(ValueError, match=message):
    ensure(tmp_path, **overrides)
  assert not list(tmp_path.iterdir())


@mutation('holdout = 0.0 if data.heldout else data.holdout', 'holdout = data.holdout')
@mutation("gone = ('store/heldout',) if apart else", "gone = ('store/heldout',) if False else")
@mutation('  _record(data, seed, workdir)\n\n\ndef made_of', '\n\n\ndef made_of')
@mutation('followed = fd is not None', 'pass', file='bertjax/children.py')
def test_a_text_of_its_own_is_held_out(tmp_path, capfd):
  (tmp_path / 'a.txt').write_text('the cat sat\n\non a mat\n\n' * 20)
  (tmp_path / 'b.txt').write_text('a cat\n\nthe mat\n')
  given = dict(input=str(tmp_path / 'a.txt'), heldout=str(tmp_path / 'b.txt'), workers=1)
  given |= {'train_vocab.type': 'words', 'train_vocab.size': 300, 'split': 'verbatim'}
  store = open_store(ensure(tmp_path / 'run', **given))
  held_out = open_store(store.path / 'heldout')
  vocabulary = load_vocabulary(store.path / 'vocab')
  assert vocabulary.decode(held_out.gather([0], [held_out.sentences[-1]])) == 'a cat\n\nthe mat\n'
  assert store.sentences[-1] == 20 * 10 and store.vocabulary_size == 9
  # A run that was killed between the two makes the second one.
  shutil.rmtree(held_out.path)
  ensure(tmp_path / 'run', **given)
  assert open_store(held_out.path).meta == held_out.meta
  assert 'has no mask' not in capfd.readouterr().out  # a run has compared its own recipe
  # Another one, for which the text to train on is not read again.
  made = (store.path / 'store.json').stat().st_mtime_ns
  (tmp_path / 'b.txt').rename(tmp_path / 'c.txt')
  ensure(tmp_path / 'run', **given | dict(heldout=str(tmp_path / 'c.txt')))
  again = (held_out.path / 'store.json').stat().st_mtime_ns
  ensure(tmp_path / 'run', **given | dict(heldout=str(tmp_path / 'c.txt')))
  assert (held_out.path / 'store.json').stat().st_mtime_ns == again > made
  assert (store.path / 'store.json').stat().st_mtime_ns == made


@mutation('(data, source, vocab) | own', '(data, source, vocab) | own | dict(documents=None)')
@pytest.mark.usefixtures('forked')
def test_the_field_the_documents_and_what_is_left_out_reach_the_children(tmp_path):
  lines = ['{"a": {"b": "the cat"}}', '{"a": 3}', '{"a": {"b": "a mat"}}'] * 10
  (tmp_path / 'a.jsonl').write_text('\n'.join([*lines, '{"a": {"b": "many other words"}}']))
  given = dict(input=str(tmp_path / 'a.jsonl'), field='a.b', workers=1, holdout=0.0, documents=20)
  given |= {'train_vocab.type': 'words', 'train_vocab.size': 300}
  with pytest.raises(ValueError, match='bertjax.vocab failed'):
    ensure(tmp_path / 'run', **given)
  store = open_store(ensure(tmp_path / 'run', skip_bad=True, **given))
  assert store.meta['stats']['documents'] == 20 and store.meta['stats']['bad_lines'] == 10
  assert store.vocabulary_size == 7  # <eos>, <unk>, <pad> and four words


@mutation('  ensure_store.clear_others(data, seed, workdir)\n', '')
@pytest.mark.usefixtures('forked')
def test_a_stream_has_the_vocabulary_that_it_asks_for(tmp_path):
  (tmp_path / 'a.txt').write_text('the cat\n\na mat\n')
  (tmp_path / 'b.txt').write_text('many other words\n')
  given = {'reader': 'seqio', 'train_vocab.type': 'words', 'train_vocab.size': 300}
  sizes = []
  for name in ('a.txt', 'b.txt', 'b.txt'):
    workdir = ensure(tmp_path / 'run', input=str(tmp_path / name), **given)
    sizes.append(load_vocabulary(pathlib.Path(workdir, 'vocab')).size)
  assert sizes == [7, 6, 6]  # <eos>, <unk>, <pad> and the words


@mutation('  if not differing:\n', '  if True:\n', file='bertjax/store/ensure.py')
@pytest.mark.usefixtures('forked')
def test_a_store_that_a_failed_start_made_of_other_text_is_made_again(tmp_path, capfd):
  texts = [tmp_path / name for name in ('a.txt', 'b.txt')]
  for path, word in zip(texts, ('apple', 'banana'), strict=True):
    path.write_text('\n\n'.join(f'{word} {word} number {i}.' for i in range(50)))
  vocab = tmp_path / 'vocab.txt'
  words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'apple', 'banana', 'number', '.']
  vocab.write_text('\n'.join(words))
  counts = []
  for path in (texts[0], texts[1], texts[1]):
    made = ensure(tmp_path / 'run', input=str(path), vocab=str(vocab), holdout=0.0)
    counts.append(open_store(made).counts[5:7].tolist())
  assert counts == [[100, 0], [0, 100], [0, 100]]
  assert capfd.readouterr().out.count('other values of input of config.data') == 1


@mutation('before.get(key, wanted[key]) != ', 'before.get(key) != ')
@mutation('return found if data.vocab else', 'return')
@mutation('if any(next(pathlib.Path(workdir).glob(of), None) for of in (', 'if any(() and (')
@mutation("'*/config.json')", "'x/config.json')", file='bertjax/store/ensure.py')
def test_what_a_run_has_begun_on_stays(tmp_path):
  """Nor is it made again for a seed that draws nothing, or a key that there was not yet."""
  store, record = tmp_path / 'store/store.json', tmp_path / 'made_of.json'
  store.parent.mkdir()
  store.write_text('{}')
  record.write_text('{"input": "a.txt", "seed": 7}')
  for begun in ('config.json', 'seed=0/config.json'):  # the latter of a sweep
    (tmp_path / begun).parent.mkdir(exist_ok=True)
    (tmp_path / begun).write_text('{}')
    ensure(tmp_path, input='a.txt', vocab='v', errors='replace')
    with pytest.raises(ValueError, match='of input of config.data for a run that has begun here'):
      ensure(tmp_path, input='b.txt', vocab='v')
    (tmp_path / begun).unlink()
  (tmp_path / 'config.json').write_text('{}')
  assert store.exists() and 'a.txt' in record.read_text()
  with pytest.raises(ValueError, match='of seed of config.data'):  # of a vocabulary trained here
    ensure(tmp_path, input='a.txt', **{'train_vocab.type': 'words'})


@pytest.mark.parametrize('text', ['{"input": "a', '[7]', ''])
def test_a_torn_record_of_what_a_store_is_made_of_is_named(tmp_path, text):
  (tmp_path / 'made_of.json').write_text(text)
  with pytest.raises(ValueError, match='made_of.json: expected a JSON object, .*: remove it, and'):
    ensure(tmp_path, input='a.txt', vocab='v')
