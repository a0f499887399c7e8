"""A store made of shards, on Apache Beam or on anything else that encodes them, is the store of one
machine, bit for bit."""

import contextlib
import gzip
import importlib.util
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import types

import pytest
from mutation import mutation
from no_room import no_room
from prepare_runs import contents, run, stop_after, write_text, write_vocabulary

from bertjax.errors import UserError
from bertjax.store import shards as shards_lib
from bertjax.text import corpus as corpus_lib
from bertjax.vocab.vocabulary import load_vocabulary

ROOT = pathlib.Path(__file__).resolve().parents[2]
mutation('(0 if whole else int(size_D[-1]))', '0')
mutation('min(last, len(record_D)), whole)', 'min(last, len(record_D)), True)')
mutation("found.count += index['bad_lines']", "found.count = index['bad_lines']")


@pytest.fixture
def any_runner(monkeypatch):
  """Something that encodes shards in any order, in place of Beam; returns what it has made."""
  made = []

  def make(shards, options):
    del options
    there = os.listdir(shards[0].directory)
    todo = [shard for shard in shards if shard.path.name not in there]
    for shard in random.Random(0).sample(todo, len(todo)):
      shards_lib.make(shard, load_vocabulary(shard.options.vocab, shard.options.lowercase))
      made.append(shard.files.paths[0].name)

  stub = types.ModuleType('on_beam')
  stub.options_of, stub.make = list, make
  monkeypatch.setitem(sys.modules, 'bertjax.store.on_beam', stub)
  return made


def texts(tmp_path):
  """Files of unequal lengths, one of them without a document."""
  write_vocabulary(tmp_path)
  for number, documents in enumerate((40, 6, 200)):
    write_text(tmp_path / f'{number}.text', documents, seed=number)
  (tmp_path / '1b.text').write_text('\n\n')
  return dict(vocab=tmp_path / 'vocab.txt', part_mb=0.003, holdout=0.2)


def same(tmp_path, **given):
  one = run(output=tmp_path / 'one', **given)
  run(output=tmp_path / 'many', runner='Any', workers=0, **given)
  assert contents(tmp_path / 'many') == contents(tmp_path / 'one')
  assert not (tmp_path / 'many.shards').exists() and not (tmp_path / 'many.partial').exists()
  return one


def test_shards_join_to_the_store_of_one_machine(tmp_path, any_runner):
  one = same(tmp_path, input=tmp_path / '*.text', **texts(tmp_path))
  assert one.meta['parts'] > 3 and sorted(any_runner) == ['0.text', '1.text', '1b.text', '2.text']


@mutation('first = min(skip, len(record_D))', 'first = 0')
def test_a_join_that_was_killed_goes_on(tmp_path, any_runner, monkeypatch):
  given = dict(input=tmp_path / '*.text', **texts(tmp_path))
  run(output=tmp_path / 'one', **given)
  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    stop_after(patch, 4)
    run(output=tmp_path / 'many', runner='Any', workers=0, **given)
  assert (tmp_path / 'many.partial').exists() and len(any_runner) == 4
  run(output=tmp_path / 'many', runner='Any', workers=0, **given)
  assert contents(tmp_path / 'many') == contents(tmp_path / 'one')
  assert len(any_runner) == 4  # what was encoded is not encoded again


def test_languages_units_and_what_is_left_out_are_as_on_one_machine(tmp_path, any_runner):
  given = texts(tmp_path)
  (tmp_path / 'lexicon.txt').write_text('cat sat\nran far away\n')
  lines = ['{"text": "the cat sat"}', '{"no": 1}', '{"text": "dogs ran far away"}', 'no JSON'] * 40
  (tmp_path / 'c.jsonl').write_text('\n'.join(lines))
  (tmp_path / 'd.jsonl').write_text('\n'.join(lines[1:]))
  names = dict(de='0.text', en='c.jsonl', fr='2.text', it='d.jsonl')
  sources = [f'{language}={tmp_path / name}' for language, name in names.items()]
  (tmp_path / 'left').write_text('the cat\n\nsat on\n')
  (tmp_path / 'right').write_text('dogs\nran\nfar\n')
  sources.append(f'en-fr={tmp_path}/left+{tmp_path}/right')
  one = same(
    tmp_path, input=','.join(sources), lexicon=tmp_path / 'lexicon.txt', skip_bad=True, **given
  )
  assert one.meta['stats']['bad_lines'] == 160 and one.meta['stats']['broken_pairs'] == 1
  assert one.meta['stats']['found_units'] and one.languages == ['de', 'en', 'fr', 'it']


def divided(folder, pattern, vocab):
  """The shards of some of the texts of a folder, which have not been made yet."""
  corpus = corpus_lib.open_files(str(folder / pattern))
  options = shards_lib.Options(str(vocab), None, 'lines', 'strict')
  return shards_lib.divide(corpus, options, load_vocabulary(vocab), str(folder), [])


@mutation('[*reading, files.total]', '[*reading, files.total if files.verbatim else 0]')
def test_a_shard_of_more_text_is_another_one(tmp_path):
  """Text without empty lines is cut in blocks of a hundredth of all files."""
  vocab = texts(tmp_path)['vocab']
  for name, lines in (('x.plain', 9000), ('y.plain', 200_000)):
    (tmp_path / name).write_text('the cat sat on the mat\n' * lines)
  alone, beside = (divided(tmp_path, pattern, vocab)[0] for pattern in ('x.plain', '*.plain'))
  assert alone.files.paths == beside.files.paths and alone.name != beside.name


@mutation('if name != shard.name:', 'if False:')
def test_a_worker_that_reads_another_vocabulary_is_refused(tmp_path):
  given = texts(tmp_path)
  shard, *_ = divided(tmp_path, '*.text', given['vocab'])
  given['vocab'].write_text(given['vocab'].read_text() + 'cats\n')
  shards_lib.make(shard, load_vocabulary(given['vocab']))
  assert not shard.path.exists()
  assert 'is not, where it was read, what it was' in shard.refusal.read_text()


@mutation("with writing('encoded text', file):", 'if True:')
def test_a_full_disk_names_the_shard(tmp_path):
  given = texts(tmp_path)
  (shard,) = divided(tmp_path, '2.text', given['vocab'])
  vocabulary = load_vocabulary(given['vocab'])
  with pytest.raises(OSError, match=f"while writing encoded text: '.*{shard.name}.shard'"):
    with no_room():
      shards_lib.make(shard, vocabulary)
  assert not shard.path.exists()


@mutation('zipfile.BadZipFile, ', 'ZeroDivisionError, ')
def test_a_damaged_shard_is_named(tmp_path):
  given = texts(tmp_path)
  (shard,) = divided(tmp_path, '2.text', given['vocab'])
  shards_lib.make(shard, load_vocabulary(given['vocab']))
  data = bytearray(shard.path.read_bytes())
  data[len(data) // 2] ^= 1
  shard.path.write_bytes(data)
  with pytest.raises(UserError, match=f'{shard.name}.shard is damaged'):
    list(shards_lib.joined([shard], 0))


def test_what_cannot_be_divided_is_refused_before_anything_is_written(tmp_path, any_runner):
  given = texts(tmp_path) | dict(output=tmp_path / 'many', runner='Any')
  for wrong, message in (
    (dict(input='python_docs', workers=0), 'takes files of text'),
    (dict(input=tmp_path / '0.text', documents=3, workers=0), 'takes files of text'),
    (dict(input=tmp_path / '0.text', workers=2), '--direct_num_workers'),
  ):
    with pytest.raises(UserError, match=message):
      run(**given | wrong)
    assert not list(tmp_path.glob('many*')) and not any_runner


needs_beam = pytest.mark.skipif(
  importlib.util.find_spec('apache_beam') is None, reason='pip install -r requirements-beam.txt'
)
BEAM = ('--runner=DirectRunner', '--direct_running_mode=multi_processing', '--direct_num_workers=2')


def prepare(*words, **given):
  """`python -m bertjax.prepare` in a process of its own."""
  words = [*(f'--{name}={value}' for name, value in given.items()), *words]
  return subprocess.Popen(
    [sys.executable, '-m', 'bertjax.prepare', *words], cwd=ROOT, text=True,
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, PYTHONPATH=str(ROOT)),
  )  # fmt: skip


def workers_of(parent: int) -> list[int]:
  """Beam's worker processes below a process."""
  below, found = {parent}, []
  for path in sorted(pathlib.Path('/proc').glob('[0-9]*'), key=lambda path: int(path.name)):
    with contextlib.suppress(OSError, IndexError):
      if int((path / 'stat').read_text().rpartition(')')[2].split()[1]) in below:
        below.add(int(path.name))
        program = (path / 'cmdline').read_bytes().split(b'\0')
        if b'apache_beam.runners.worker.sdk_worker_main' in program:
          found.append(int(path.name))
  return found


@mutation("_KILLED = 'run_worker'", "_KILLED = 'nobody'")
@needs_beam
@pytest.mark.full
def test_beam_makes_the_english_and_chinese_store_with_a_worker_killed_on_the_way(tmp_path, shared):
  english, chinese = shared / 'text_en/enwiki_featured', shared / 'zh/zhwiki'
  c4 = shared / 'text_en/c4_minimal'
  given = dict(
    input=f'en={english}/*.xz,en={c4}/*.xz,zh={chinese}/*.xz', part_mb=4,
    vocab=shared / 'tokenizers/bert-base-multilingual-cased/vocab.txt',
  )  # fmt: skip
  one = prepare(output=tmp_path / 'one', **given)
  said, _ = one.communicate(timeout=900)
  assert one.returncode == 0, said[-3000:]
  many = prepare(*BEAM, output=tmp_path / 'many', **given)
  directory = tmp_path / 'many.shards'
  while many.poll() is None and not list(directory.glob('*.shard')):
    time.sleep(0.05)
  os.kill(workers_of(many.pid)[0], signal.SIGKILL)
  said, _ = many.communicate(timeout=60)
  done = len(list(directory.glob('*.shard')))
  assert many.returncode == 1 and 'a worker process died' in said and 0 < done < 10
  again = prepare(*BEAM, output=tmp_path / 'many', **given)
  said, _ = again.communicate(timeout=900)
  assert again.returncode == 0, said[-3000:]
  assert f'There are {done} of 10 shards' in said
  assert contents(tmp_path / 'many') == contents(tmp_path / 'one')
  meta = json.loads((tmp_path / 'one/store.json').read_text())
  assert meta['languages'] == ['en', 'zh'] and meta['parts'] > 3 and meta['tokens'] > 10**7


@needs_beam
@pytest.mark.full
def test_beam_says_what_is_wrong_with_text_and_flags(tmp_path):
  given = dict(output=tmp_path / 'many', input=tmp_path / '*.text*', split='lines')
  given |= texts(tmp_path)
  refused = prepare(*BEAM, '--direct_num_wrokers=2', **given)
  said, _ = refused.communicate(timeout=120)
  assert refused.returncode == 1 and '--direct_num_wrokers=2 is a flag neither' in said
  with gzip.open(tmp_path / '3.text.gz', 'wb') as file:
    file.write(b'the cat sat\n\n' * 20_000 + b'on \xff a mat\n')
  refused = prepare('--runner=DirectRunner', '--direct_running_mode=in_memory', **given)
  said, _ = refused.communicate(timeout=300)
  assert refused.returncode == 1 and '3.text.gz, line 40001: not UTF-8' in said
  assert len(list((tmp_path / 'many.shards').glob('*.shard'))) == 4
