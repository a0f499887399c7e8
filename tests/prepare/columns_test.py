"""What `prepare` writes besides tokens: units, languages, roles; and what it refuses."""

import gzip
import json
import random

import numpy as np
import prepare_runs
import pytest
from mutation import mutation
from prepare_runs import contents, run, sentences_of

from bertjax import registry
from bertjax.errors import UserError
from bertjax.store.reader import open_store
from bertjax.text import phrases
from bertjax.vocab.vocabulary import load_vocabulary

mutation("self._numbers(batch.languages)[column['language']]", "column['language']")
mutation("self.languages, self._begun = progress['languages'], set", 'self._begun = set')


def texts_of(store):
  vocabulary = load_vocabulary(store.path / 'vocab')
  return [vocabulary.decode(ids) for ids in sentences_of(store)]


def beginning(text):
  """A segmenter: two words or so."""
  return [(0, text.index(' ', 4))]


def values(store, name):
  return store.column(name).tolist()


@mutation(' & ~self._begins_language(column, size_D)', '')
@mutation('if much or asked and not held_out:', 'if much or not held_out:')
def test_a_language_that_nothing_divides_is_not_held_out(tmp_path, vocab, capfd):
  """XLM's text: a sentence a line and no blank lines, so that the second file is document two."""
  for name in ('en', 'fr'):
    (tmp_path / f'{name}.txt').write_text('The cat sat.\nThe dogs ran far away.\n' * 50)
  given = ','.join(f'{name}={tmp_path}/{name}.txt' for name in ('en', 'fr'))
  store = run(input=given, vocab=vocab, output=tmp_path / 'two')
  assert np.bincount(store.column('language')).tolist() == [100, 100]
  said = capfd.readouterr().out
  assert not (store.path / 'heldout').exists() and 'are held out' not in said
  assert 'Warning: nothing is held out, where --holdout=0.01 asks for that share' in said
  run(input=given, vocab=vocab, output=tmp_path / 'none', holdout=0.0)
  assert 'nothing is held out' not in capfd.readouterr().out


def test_much_that_is_held_out_is_said(tmp_path, vocab, capfd):
  (tmp_path / 'a.txt').write_text('The cat sat.\n\n' + 'The dogs ran far away.\n' * 9)
  run(input=tmp_path / 'a.txt', vocab=vocab, output=tmp_path / 'a')
  assert 'of the tokens are held out, where --holdout=0.01 asks' in capfd.readouterr().out


def test_workers_and_parts_change_no_token_and_no_unit_beside_it(tmp_path, vocab):
  prepare_runs.write_text(tmp_path / 'a.txt', documents=300)
  (tmp_path / 'lexicon.txt').write_text('cat sat\nran far away\nThe dogs\t7\n')
  given = dict(input=tmp_path / 'a.txt', vocab=vocab, lexicon=tmp_path / 'lexicon.txt')
  one = run(output=tmp_path / 'one', **given)
  run(output=tmp_path / 'two', workers=2, **given)
  assert contents(tmp_path / 'one') == contents(tmp_path / 'two')
  parts = run(output=tmp_path / 'parts', part_mb=0.001, **given)
  assert one.meta['parts'] == 1 < parts.meta['parts']
  prepare_runs.assert_same_text(parts, one)
  np.testing.assert_array_equal(np.concatenate(parts.units), one.units[0])
  sentence_n = np.repeat(np.arange(len(one.sentences) - 1), np.diff(one.sentences))
  unit_n, token_n = one.units[0], one.parts[0]
  assert unit_n.dtype == np.uint8 and (unit_n[one.sentences[:-1]] > 0).all()
  pieces = load_vocabulary(vocab).pieces
  word = lambda n: pieces[token_n[n]]
  for n in np.flatnonzero(unit_n == phrases.FOUND):
    stop = n + 1
    while stop < len(unit_n) and not unit_n[stop]:
      stop += 1
    assert [word(m) for m in range(n, stop)] in (
      ['cat', 'sat'], ['ran', 'far', 'away'], ['the', 'dogs'],
    )  # fmt: skip
    assert sentence_n[n] == sentence_n[stop - 1]
  held_out = open_store(tmp_path / 'one/heldout')
  found = sum(int((s.units[0] == phrases.FOUND).sum()) for s in (one, held_out))
  assert found == one.meta['stats']['found_units'] > 30


@mutation('found.append(dict(segmenter', 'str(dict(segmenter')
def test_a_broken_off_run_keeps_units_and_columns(tmp_path, vocab, monkeypatch):
  draw = random.Random(0)
  documents = [
    dict(text=' '.join(draw.choices(prepare_runs.WORDS, k=9)), language=name)
    for name in ('xx', 'yy')
    for _ in range(100)
  ]
  (tmp_path / 'a.jsonl').write_text('\n'.join(map(json.dumps, documents)))
  given = dict(input=tmp_path / 'a.jsonl', columns=['language'], vocab=vocab, part_mb=0.001)
  given |= dict(segmenter=f'{__name__}:beginning')
  stop = lambda patch: prepare_runs.stop_after(patch, 2)
  store = prepare_runs.goes_on(tmp_path, stop, times=2, **given)
  assert store.languages == ['xx', 'yy'] and set(values(store, 'language')) == {0, 1}
  (tmp_path / 'changed.py').write_text('')
  monkeypatch.setattr(registry, 'own_file', lambda name: str(tmp_path / 'changed.py'))
  with pytest.raises(
    UserError, match='whole was begun with something else:\n  source: .*segmenter'
  ):
    run(output=tmp_path / 'whole', **given)


def test_files_of_several_languages_and_parallel_text(tmp_path, vocab):
  (tmp_path / 'de.txt').write_text('The cat.\n\nA mat far. The dogs run.\n')
  (tmp_path / 'x.en.gz').write_bytes(gzip.compress(b'The cat sat.\n\nA cat. And dogs.\nHills\n'))
  (tmp_path / 'x.de').write_text('Dogs run far.\nA mat.\r\nThe dogs sat.\n\u200b\n')
  (tmp_path / 'y.tsv').write_text('The mat\tOver hills\tby me\n')
  source = f'de={tmp_path}/de.txt,en-de={tmp_path}/x.en.gz+{tmp_path}/x.de,en-fr={tmp_path}/y.tsv'
  given = dict(input=source, vocab=vocab, holdout=0.0, split='sentences')
  store = run(output=tmp_path / 's', **given)
  assert texts_of(store) == [
    'the cat.', 'a mat far.', 'the dogs run.',
    'the cat sat.', 'dogs run far.', 'a cat. and dogs.', 'the dogs sat.', 'the mat', 'over hills',
  ]  # fmt: skip
  assert np.diff(store.documents).tolist() == [1, 2, 2, 2, 2]
  assert store.languages == ['de', 'en', 'fr']
  assert values(store, 'language') == [0, 0, 0, 1, 0, 1, 0, 1, 2]
  assert store.meta['stats']['broken_pairs'] == 2  # an empty line, and one without a token
  fixed = run(output=tmp_path / 't', **given, languages=['fr', 'en', 'it', 'de'])
  assert fixed.languages == ['fr', 'en', 'it', 'de']
  assert values(fixed, 'language') == [3, 3, 3, 1, 3, 1, 3, 1, 0]


def test_json_lines_say_languages_and_roles(tmp_path, vocab):
  lines = [
    dict(text='The cat.\nA dog.', role=[1, 0], language='en'),
    dict(text='The mat\nHills', role='3', language='fr en'),
    dict(text='Dogs', language='de'),
  ]
  (tmp_path / 'a.jsonl').write_text('\n'.join(map(json.dumps, lines)))
  given = dict(input=tmp_path / 'a.jsonl', vocab=vocab, holdout=0.0)
  store = run(output=tmp_path / 's', columns=['role', 'language'], **given)
  assert store.meta['columns'] == ['language', 'role']
  assert store.languages == ['en', 'fr', 'de']
  assert values(store, 'language') == [0, 0, 1, 0, 2] and values(store, 'role') == [1, 0, 3, 3, 0]
  plain = run(output=tmp_path / 'plain', **given)
  assert not plain.columns and texts_of(plain) == texts_of(store)
  with pytest.raises(
    ValueError, match="no column 'topic', .*Stores have language and role at most"
  ):
    plain.column('topic')
  with pytest.raises(ValueError, match="has no column 'role', only none.*--columns=role"):
    plain.column('role')
  with pytest.raises(ValueError, match='has no units.*--lexicon=FILES.*--segmenter'):
    plain.gather_units(np.zeros(1, int), np.ones(1, int))


def test_mistakes_write_nothing(tmp_path, vocab):
  (tmp_path / 'a.txt').write_text('The cat.\nThe mat.\n')
  (tmp_path / 'b.txt.gz').write_bytes(gzip.compress(b'The cat.\n'))
  (tmp_path / 'c.tsv').write_text('The cat.\tA dog.\nThe mat.\n')
  (tmp_path / 'd.jsonl').write_text('{"text": "The cat.", "language": "en"}\n{"text": "A dog."}\n')
  (tmp_path / 'lexicon.txt').write_text('nothing of this\nthe cat\n')
  (tmp_path / 'e.jsonl').write_text('{"text": "The cat.", "language": "en"}\n')
  names = ('a.txt', 'b.txt.gz', 'c.tsv', 'd.jsonl', 'e.jsonl')
  a, b, c, d, e = (f'{tmp_path}/{name}' for name in names)
  for given, message in (
    (dict(input=f'en-de={a}+{b}'), 'a.txt has 2, .*b.txt.gz has 1. Align the files'),
    (dict(input=f'en-de={a}'), 'expected parallel text, two files joined by .* got 1'),
    (dict(input=f'en-de={c}'), 'c.tsv, line 2: expected two columns with a TAB'),
    (dict(input=f'en={a},{b}'), 'b.txt.gz has no language, but other files have'),
    (dict(input=f'en={a},fr={b}', languages=['en', 'de']), "'fr', which has no id: .* en, de. Add"),
    (
      dict(input=f'en={a},fr={b}', languages=['en', 'fr', 'en']),
      "--languages: 'en' is there twice",
    ),
    (dict(input=a, languages=['en', 'de']), '--languages=en,de, but the text does not say'),
    (dict(input=e, columns=['language'], languages=['de']), "the language 'en', which has no id"),
    (dict(input=d, columns=['language']), "a document has no language; it begins with 'A dog"),
    (dict(input=d, columns=['langauge']), "--columns: .*did you mean 'language'"),
    (dict(input='python_docs', columns=['role']), '--columns: python_docs has no role'),
    (dict(input=a, lexicon=f'{tmp_path}/lexicon.txt'), '--lexicon=.*found nothing in 1 document, '),
    (dict(input=a, segmenter='capitals'), '--segmenter=capitals found nothing'),
  ):
    with pytest.raises(ValueError, match=message):
      run(vocab=vocab, output=tmp_path / 's', **given)
    assert not list(tmp_path.glob('s*'))
