"""The records of ERNIE 1.0: read as the original masks them, and refused by line."""

import gzip

import numpy as np
import pytest
from mutation import mutation
from prepare_runs import run
from toy_store import ernie

from bertjax.examples import examples as examples_lib


@mutation('sizes += [2] if follows else [1, 1]', 'sizes += [2]')
def test_records_of_the_original(shared, tmp_path):
  """Its boundaries give the rates of its masking; a resumed run ends with the same bytes."""
  given = dict(
    input=f'ernie1:{shared}/golden/ernie1/demo_valid_set.gz',
    vocab=shared / 'tokenizers/ernie-1.0/vocab.txt',
    holdout=0.0,
  )
  golden = run(output=tmp_path / 's', **given)
  lines = gzip.open(f'{shared}/golden/ernie1/demo_valid_set.gz').read().splitlines()
  unrelated = sum(line.endswith(b';0') for line in lines)
  assert golden.meta['sentences'] == 12_000 and golden.meta['documents'] == 6000 + unrelated > 6000
  lengths = np.diff(golden.sentences)
  unit_n = golden.units[0]
  np.testing.assert_allclose(len(unit_n) / (unit_n > 0).sum(), 1.4185, atol=1e-4)
  assert (lengths > 0).all() and (unit_n[golden.sentences[:-1]] > 0).all()
  for word_prob in (0.0, 1.0):
    config = ernie(mask__word_prob=word_prob)
    examples = examples_lib.examples_in_memory(golden, config, 128, 0)
    assert abs(examples.count['positives'] - examples.count['negatives']) < 100
    batch = examples.batch(np.arange(3000), True)
    real_tokens = (batch['example_BT'] > 0).sum() - 3 * 3000
    targets = (batch['weight_BP'] > 0).sum()
    masked = (batch['masked_BP'] > 0).sum() / targets
    assert abs(targets / real_tokens - 0.15) < 4 * np.sqrt(1.6 * 0.13 / real_tokens)
    assert abs(masked - 0.8) < 4 * np.sqrt(0.16 / targets) and not batch['dropped_B'].any()


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    (b'1 5 2 6 2;0;0;-1 0 -1 0 -1', '4 fields'),
    (b'1 5 2 6 2;0;0;-1 0 -1 0;1', 'segment labels are not -1'),
    (b'1 5 2 6 2;0;0;-1 0 0 0 -1;1', 'segment labels are not -1'),
    (b'1 5 2 6 2;0;0;-1 1 -1 0 -1;1', 'begins inside a word'),
    (b'1 5 2 99 2;0;0;-1 0 -1 0 -1;1', 'id 99 of a vocabulary of 8'),
    (b'1 5 2 -7 2;0;0;-1 0 -1 0 -1;1', 'id -7 of a vocabulary of 8'),
    (b'1 2 6 2;0;0;-1 -1 0 -1;1', 'expected .CLS. A .SEP. B'),
    (b'x', '1 fields'),
  ],
)
def test_wrong_records_are_named(tmp_path, line, message):
  (tmp_path / 'vocab.txt').write_text('[PAD]\t0\n[CLS]\t1\n[SEP]\t2\n[MASK]\t3\na\nb\nc\n[UNK]\n')
  (tmp_path / 'r.txt').write_bytes(b'1 5 2 6 2;0;0;-1 0 -1 0 -1;1\n' + line + b'\n')
  given = dict(input=f'ernie1:{tmp_path}/r.txt', vocab=tmp_path / 'vocab.txt')
  with pytest.raises(ValueError, match=f'r.txt, line 2: expected a record .*{message}'):
    run(output=tmp_path / 's', **given)
  assert not list(tmp_path.glob('s*'))


@pytest.mark.parametrize(
  'flag, value',
  dict(
    split='lines', errors='replace', documents=3, module='my_tasks', field='body', columns='role',
    languages='zh', lexicon='words.txt', segmenter='capitals',
  ).items(),
)  # fmt: skip
@mutation('    if flag.value != flag.default:\n', '    if False:\n')
def test_flags_of_text_are_refused(tmp_path, flag, value):
  (tmp_path / 'vocab.txt').write_text('[PAD]\t0\n[CLS]\t1\n[SEP]\t2\n[MASK]\t3\na\nb\nc\n[UNK]\n')
  (tmp_path / 'r.txt').write_bytes(b'1 5 2 6 2;0;0;-1 0 -1 0 -1;1\n')
  given = dict(input=f'ernie1:{tmp_path}/r.txt', vocab=tmp_path / 'vocab.txt')
  with pytest.raises(ValueError, match=f'--{flag} is of text.*leave it out'):
    run(output=tmp_path / 's', **given, **{flag: value})
  assert not list(tmp_path.glob('s*'))
