"""`python -m bertjax.prepare`: what it writes, and what it refuses."""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import re
import subprocess
import time

import fsspec
import numpy as np
import pytest
from mutation import mutation
from prepare_runs import (
  command,
  contents,
  goes_on,
  run,
  sentences_of,
  stop_after,
  write_text,
)  # fmt: skip

from bertjax.store import builder as store_builder
from bertjax.store import unfinished
from bertjax.store.reader import open_store
from bertjax.text import sentence_split
from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import load_vocabulary

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize('kind', ['words', 'bytes'])
@mutation("'[^\\n]*\\n|[^\\n]+'", "'[^\\n]+\\n|[^\\n]+'")
def test_verbatim_text_is_a_stream_in_which_nothing_is_lost(tmp_path, kind):
  text = '\n  the cat \n\n\n<doc>\nsat\x85 on\u2028a mat\r\n \n</doc>\n' * 4000 + 'é\n'
  (tmp_path / 'a.txt').write_bytes(text.encode())
  (tmp_path / 'v').mkdir()
  TRAINERS[kind](text.split('\n')[:-1], 300, False, tmp_path / 'v')
  given = dict(input=tmp_path / 'a.txt', vocab=tmp_path / 'v', holdout=0, split='verbatim')
  store = run(output=tmp_path / 's', **given)
  found = load_vocabulary(tmp_path / 's/vocab').decode(np.concatenate(store.parts))
  words = '\n'.join(' '.join(line.split()) for line in text.split('\n'))
  assert found == {'bytes': text, 'words': words}[kind]
  assert store.counts[store.special['eos']] == text.count('\n')
  assert store.meta['documents'] == 101  # a hundredth of the text each, and a rest


def test_store_holds_every_sentence_of_every_document(tmp_path, vocab):
  texts = write_text(tmp_path / 'a.txt')
  store = run(input=tmp_path / 'a.txt', vocab=vocab, output=tmp_path / 's', holdout=0.1)
  held_out = open_store(tmp_path / 's/heldout')
  vocabulary = load_vocabulary(tmp_path / 's/vocab')
  del texts[5]
  split = [sentence_split.split_document(text, 'sentences') for text in texts]
  documents = [[ids.tolist() for ids in vocabulary.encode_batch(each)] for each in split]
  found = {}
  for name, part in (('train', store), ('held_out', held_out)):
    sentences = [ids.tolist() for ids in sentences_of(part)]
    ranges = itertools.pairwise(part.documents.tolist())
    found[name] = [sentences[a:b] for a, b in ranges]
  assert found['held_out'] == [d for d in documents if d in found['held_out']]
  assert found['train'] == [d for d in documents if d not in found['held_out']]
  assert 10 <= len(found['held_out']) <= 32 and documents[1] in found['held_out']
  size = (tmp_path / 'a.txt').stat().st_size - 199
  counted = store_builder.Stats(200, size, empty_documents=1, empty_sentences=1)
  assert store.meta['stats'] == dataclasses.asdict(counted)
  unknown = sum(ids.count(1) for d in found['train'] for ids in d)
  assert store.counts[1] == unknown > 0
  assert store.vocabulary_size == vocabulary.size and store.special['mask'] == 4


def test_every_small_corpus_has_a_held_out_document_if_it_can(tmp_path, vocab):
  for documents, held_out in ((1, 0), (2, 1), (3, 1)):
    (tmp_path / 'a.txt').write_text('\n\n'.join(['The cat.'] * documents))
    store = run(input=tmp_path / 'a.txt', vocab=vocab, output=tmp_path / f's{documents}')
    assert store.meta['documents'] == documents - held_out
    assert (store.path / 'heldout').exists() == bool(held_out)
  store = run(input=tmp_path / 'a.txt', vocab=vocab, output=tmp_path / 'none', holdout=0.0)
  assert store.meta['documents'] == 3 and not (store.path / 'heldout').exists()


@pytest.mark.full
def test_memory_does_not_grow_with_the_corpus(tmp_path, vocab):
  write_text(tmp_path / 'a.txt', documents=50_000)
  (tmp_path / 'b.txt').write_text((tmp_path / 'a.txt').read_text() * 6)
  peaks = {}
  for name in ('a.txt', 'b.txt'):
    given = dict(input=tmp_path / name, output=tmp_path / f'{name}.store', part_mb=1, workers=0)
    words = command(vocab=vocab, **given)
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
    peaks[name] = 0
    while process.poll() is None:
      with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        status = pathlib.Path(f'/proc/{process.pid}/status').read_text()
        found = re.search(r'RssAnon:\s*(\d+) kB', status)
        peaks[name] = max(peaks[name], int(found[1]) if found else 0)
      time.sleep(0.05)
    assert process.returncode == 0
  assert peaks['b.txt'] < 1.1 * peaks['a.txt'], peaks


@pytest.mark.parametrize('changed', ['a.txt', 'lexicon.txt'])
def test_finished_store_is_not_made_again_and_another_is_not_mixed_in(
  tmp_path, given, capsys, changed
):
  (tmp_path / 'lexicon.txt').write_text('cat sat\n')
  given |= dict(output=tmp_path / 's', lexicon=tmp_path / 'lexicon.txt')
  run(**given)
  run(**given)
  assert 'already there' in capsys.readouterr().out
  with pytest.raises(ValueError, match=r'options: there {"holdout": 0.01}, .* {"holdout": 0.2}'):
    run(**(given | dict(holdout=0.2)))
  (tmp_path / changed).write_text('The cat.')
  with pytest.raises(ValueError, match='(?s)source: there .*remove .*name another --output'):
    run(**given)


def test_what_becomes_of_capitals_and_accents_is_said_and_compared(tmp_path, vocab, given, capsys):
  given |= dict(output=tmp_path / 's')
  rows = lambda: re.sub('[ │]+', ' ', capsys.readouterr().out)
  store = run(**given)
  assert {k: store.meta['vocabulary'][k] for k in ('lowercase', 'accents')} == dict(
    lowercase=True, accents=False
  )
  assert ' lowercase true ' in (said := rows()) and ' accents stripped ' in said
  vocab.write_text(vocab.read_text().replace('mat\n', 'mät\n'))
  run(**(given | dict(output=tmp_path / 't')))
  assert ' accents kept ' in rows()
  with pytest.raises(ValueError, match='vocabulary: there .*"accents": false.*"accents": true'):
    run(**given)


def test_a_bucket_with_foreign_files_is_left_alone(given):
  files = fsspec.filesystem('memory')
  for name, content in (('mine.txt', b'x'), ('tokens-00000.npy', b'of a sending that broke off')):
    files.pipe(f'/bucket/s/{name}', content)
  with pytest.raises(ValueError, match="memory://bucket/s has 'mine.txt', which is no part of a"):
    run(output='memory://bucket/s', **given)
  assert len(files.find('/bucket/s')) == 2
  unfinished.refuse_foreign('memory://bucket/none')
  files.rm('/bucket/s/mine.txt')
  unfinished.refuse_foreign('memory://bucket/s')


def test_foreign_directories_are_left_alone(tmp_path, given):
  for name in ('s', 't.partial'):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'mine.txt').write_text('x')
    (tmp_path / name / 'progress.json.tmp').write_text('')
    with pytest.raises(ValueError, match=f'{name} exists'):
      run(output=tmp_path / name.removesuffix('.partial'), **given)
    assert contents(tmp_path / name) == {'mine.txt': b'x', 'progress.json.tmp': b''}


def test_mistakes_write_nothing(tmp_path, vocab):
  (tmp_path / 'empty.txt').write_text('\n \u200b\n')
  (tmp_path / 'latin.txt').write_bytes(b'The cat.\n\nA caf\xe9.\n')
  output = tmp_path / 's'
  for values, message in (
    (dict(input=tmp_path / 'empty.txt'), 'has no text: 1 document, all empty'),
    (dict(input=tmp_path / 'latin.txt'), 'latin.txt, line 3: not UTF-8 at byte 5 .*--skip_bad'),
    (dict(input=tmp_path / 'latin.txt', vocab=tmp_path / 'no'), 'no: expected a vocabulary'),
  ):
    with pytest.raises(ValueError, match=message):
      run(**(dict(vocab=vocab, output=output) | values))
    assert not output.exists() and not (tmp_path / 's.partial').exists()
  store = run(input=tmp_path / 'latin.txt', vocab=vocab, output=output, errors='replace')
  assert store.meta['stats']['replaced'] == 1


def test_bad_text_is_left_out_counted_and_named(tmp_path, vocab, capsys):
  lines = [f'{{"body": {{"text": "The cat {i}."}}}}' for i in range(300)]
  lines[7] = lines[100] = '{"body": 3}'
  (tmp_path / 'a.jsonl').write_text('\n'.join(lines))
  given = dict(input=tmp_path / 'a.jsonl', vocab=vocab, field='body.text')
  with pytest.raises(ValueError, match='a.jsonl, line 8: expected a JSON object.*--skip_bad'):
    run(output=tmp_path / 's', **given)
  assert not (tmp_path / 's.partial').exists()
  store = run(output=tmp_path / 's', skip_bad=True, **given)
  stats = store.meta['stats']
  assert (stats['documents'], stats['bad_lines'], stats['bad_documents']) == (298, 2, 0)
  shown = capsys.readouterr().out
  assert re.search(r'records and documents left out +│ +2 ', shown)
  assert re.search(r'left out: .*a.jsonl, line 8: .*\n+left out: .*a.jsonl, line 101: ', shown)
  assert store.meta['options']['skip_bad'] is True


def test_bad_documents_and_lines_of_a_run_that_was_broken_off_are_counted_once(tmp_path, vocab):
  """Documents that only the encoder meets: columns that do not fit the lines."""
  lines = [dict(text='The cat.\nA mat.', role=[0, 1]) for _ in range(300)]
  lines[5]['role'] = lines[200]['role'] = [0, 1, 2]
  lines = [*map(json.dumps, [*lines, dict(text='')])]
  (tmp_path / 'a.jsonl').write_text('\n'.join(lines))
  given = dict(
    input=tmp_path / 'a.jsonl', vocab=vocab, columns=['role'], holdout=0.0, part_mb=0.001
  )
  with pytest.raises(ValueError, match='a document has 2 lines and 3 values of role'):
    run(output=tmp_path / 'strict', **given)
  lines[3:3] = lines[-2:-2] = ['no JSON']
  (tmp_path / 'a.jsonl').write_text('\n'.join(lines))
  whole = goes_on(tmp_path, lambda patch: stop_after(patch, 2), skip_bad=True, **given)
  stats = whole.meta['stats']
  assert (stats['documents'], stats['bad_documents'], stats['empty_documents']) == (301, 2, 1)
  assert stats['bad_lines'] == 2 and whole.meta['documents'] == 298
  places = {name.split(':')[0].rpartition('/')[2] for name in stats['bad_first']}
  assert places == {'a.jsonl, line 4', 'a.jsonl, line 301', 'document 6', 'document 201'}
