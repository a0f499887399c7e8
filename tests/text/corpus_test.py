"""Corpora of local text, which TensorFlow has no part in."""

import bz2
import gzip
import subprocess
import sys

import pytest
from mutation import mutation
from processes import ROOT

from bertjax.examples.seqio_tasks import names
from bertjax.text import corpus as corpus_lib
from bertjax.text.corpus import open_files
from bertjax.text.files import find_files


def texts(corpus, skip=0):
  return [text.decode() for batch in corpus.batches(skip) for text in batch]


def test_a_corpus_can_be_entered_anywhere(tmp_path):
  expected = [f'document {i}\n' for i in range(100)]
  (tmp_path / 'a.txt').write_text('\n'.join(expected))
  corpus = open_files(f'{tmp_path}/*.txt')
  assert texts(corpus) == expected and corpus.done(100) == 1.0
  assert texts(corpus, skip=37) == expected[37:]
  first = corpus.first(12)
  assert texts(first) == expected[:12] and texts(first, skip=10) == expected[10:12]
  assert texts(first, skip=20) == [] and first.done(6) == 0.5


def test_a_folder_is_all_known_files_below_it_sorted(tmp_path, caplog):
  for name in ('b/2.txt', 'b/1.jsonl', 'a.csv.gz', 'c/AA/wiki_00', 'z.txt.bz2'):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
  (tmp_path / 'a.csv.gz').write_bytes(gzip.compress(b'id,text\n0,csv\n'))
  (tmp_path / 'b/1.jsonl').write_text('{"text": "json"}\n')
  (tmp_path / 'b/2.txt').write_text('text\n\nmore\n')
  (tmp_path / 'c/AA/wiki_00').write_text('<doc id="1">\nwiki\n</doc>\n')
  (tmp_path / 'z.txt.bz2').write_bytes(bz2.compress(b'bz2\n'))
  (tmp_path / 'picture.png').write_bytes(b'x')
  (tmp_path / '_SUCCESS').write_text('')
  (tmp_path / '.hidden.txt').write_text('no')
  expected = ['csv', 'json', 'text\n', 'more\n', 'wiki\n', 'bz2\n']
  for pattern in (tmp_path, f'{tmp_path}/', f'{tmp_path.parent}/{tmp_path.name[:-1]}?'):
    caplog.clear()
    assert texts(open_files(str(pattern))) == expected
    assert '1 file left out' in caplog.text and 'picture.png' in caplog.text
  found = [path.name for path in find_files(f'{tmp_path}/*')]
  assert found == ['_SUCCESS', 'a.csv.gz', 'picture.png', 'z.txt.bz2']
  (tmp_path / 'com,ma.txt').write_text('comma')
  assert texts(open_files(f'{tmp_path}/com?ma.txt')) == ['comma']
  (tmp_path / 'none').mkdir()
  with pytest.raises(ValueError, match='no file matches .*none.* write [?] for the comma in one'):
    open_files(f'{tmp_path}/none')


def test_what_is_no_text_is_met_before_any_work(tmp_path):
  """In the last file, before the first is read."""
  (tmp_path / 'a.txt').write_text('text\n')
  (tmp_path / 'b.txt').write_bytes('text\n'.encode('utf-16'))
  with pytest.raises(ValueError, match='b.txt is UTF-16: expected UTF-8'):
    open_files(str(tmp_path))
  (tmp_path / 'none.txt').write_bytes(b'')
  with pytest.raises(ValueError, match='all files are empty'):
    open_files(f'{tmp_path}/none.txt')


def test_counts_of_what_is_left_out_are_those_of_one_pass(tmp_path):
  (tmp_path / 'a.txt').write_bytes(b'one\ntw\xff\n\nthree\n\xff\n')
  corpus = open_files(str(tmp_path / 'a.txt'), skip_bad=True)
  corpus.detect()
  for _ in range(2):
    assert texts(corpus) == ['one\n', 'three\n']
    assert corpus.left_out.count == 2
    assert [name.split(':')[0][-6:] for name in corpus.left_out.named] == ['line 2', 'line 5']


@mutation('if given != sentence_split.AUTO:', 'if False:')
@mutation('for each in files.sources if not', 'for each in files.sources[:1] if not')
def test_each_part_says_what_its_lines_are(tmp_path):
  for name, text in (('en', 'One.\nTwo.\n' * 9), ('zh', '一。二。\n三。四。\n')):
    (tmp_path / f'{name}.txt').write_text(text)
  detect = lambda *names: open_files(','.join(f'{n}={tmp_path}/{n}.txt' for n in names)).detect()
  assert [detect('en'), detect('zh')] == ['lines', 'sentences']
  assert detect('en', 'zh') == detect('zh', 'en') == 'sentences'
  assert open_files(str(tmp_path / 'zh.txt')).detect('verbatim') == 'verbatim'


def test_every_name_that_needs_tensorflow_is_registered():
  from bertjax.examples.seqio_tasks import corpora, registered  # noqa: F401

  assert set(names.WITH_TENSORFLOW) < set(corpora.registered_names())
  assert corpus_lib.PYTHON_DOCS in corpora.registered_names()


BLOCKED = """
import runpy, sys
for name in ('tensorflow', 'seqio', 'tensorflow_datasets', 'tensorflow_text', 'jax', 'flax'):
  sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name='__main__')
"""


def command(module, **values):
  words = [sys.executable, '-c', BLOCKED, module, *(f'--{k}={v}' for k, v in values.items())]
  done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
  return done


def test_local_text_and_python_docs_pass_no_tensorflow_and_no_jax(tmp_path):
  (tmp_path / 'a.txt').write_text('The cat sat on a mat.\n\nDogs run.\n' * 50)
  source, vocab = tmp_path / 'a.txt', tmp_path / 'v'
  made = command('bertjax.vocab', input=source, type='wordpiece', size=300, output=vocab)
  assert made.returncode == 0 and made.stderr == '', made.stderr
  for name, output in ((source, 's'), ('python_docs', 't')):
    made = command(
      'bertjax.prepare', input=name, vocab=vocab, output=tmp_path / output, documents=5
    )
    assert made.returncode == 0 and made.stderr == '', made.stderr
  missing = command('bertjax.prepare', input='tfds:x', vocab=vocab, output=tmp_path / 'u')
  assert 'bertjax.prepare: tfds:x needs ' in missing.stderr
  assert 'which is not installed: pip install' in missing.stderr


@mutation('with without_greetings():', 'if True:')
@pytest.mark.full
def test_tensorflow_is_quiet(tmp_path):
  (tmp_path / 'vocab.txt').write_text('[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\na\n')
  words = [sys.executable, '-m', 'bertjax.prepare', '--input=python_docs', '--documents=3']
  words += ['--module=bertjax.examples.seqio_tasks.registered', f'--vocab={tmp_path}/vocab.txt']
  done = subprocess.run(
    [*words, f'--output={tmp_path}/s'], cwd=ROOT, capture_output=True, text=True
  )
  assert done.returncode == 0 and done.stderr == '', done.stderr
