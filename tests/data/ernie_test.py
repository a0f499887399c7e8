"""ERNIE 1.0: records, pairs from a buffer, masks by units, dialogues."""

import collections
import gzip
import io
import json
import zipfile

import flax.linen as nn
import jax
import numpy as np
import pytest
from mutation import mutation
from prepare_runs import run
from toy_store import ernie

from bertjax.data import examples as examples_lib
from bertjax.data import layout
from bertjax.data.plans import ernie_pairs
from bertjax.data.store.reader import open_store
from bertjax.data.store.writer import write_store
from bertjax.objectives import mlm
from bertjax.train import setup
from bertjax.train import step as step_lib
from bertjax.types import Context
from configs import ernie as configs_ernie

SPECIAL = dict(pad=0, unk=1, cls=2, sep=3, mask=4)
VOCABULARY = dict(type='t', size=3000, sha256='', special=SPECIAL)


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  """Units of 1 to 4 tokens, roles in turn, dialogues of 1 to 7 turns; ids say the place."""
  draw = np.random.default_rng(0)
  documents, units, roles = [], [], []
  for _ in range(900):
    sentences = [draw.geometric(1 / 9) + 1 for _ in range(draw.integers(1, 8))]
    documents.append([draw.integers(5, 3000, n) for n in sentences])
    units.append([np.append(2, draw.random(n - 1) < 0.5) for n in sentences])
    roles.append([k % 2 for k in range(len(sentences))])
  path = tmp_path_factory.mktemp('ernie') / 'store'
  write_store(path, documents, VOCABULARY, None, units, dict(role=roles))
  return open_store(path)


def batch_of(store, config, rows=600, length=64, seed=1):
  examples = examples_lib.examples_in_memory(store, config, length, seed)
  clean = config.copy_and_resolve_references()
  clean.mask.mask_share = clean.mask.random_share = 0.0
  clean = examples_lib.examples_in_memory(store, clean, length, seed)
  row_n = np.arange(rows)
  return examples.batch(row_n, True), clean.batch(row_n, True)['token_BT']


class Masks:
  """What a batch masks, token by token, and the units of the rows."""

  def __init__(self, store, config, batch, original_BT, seed=1, length=64):
    examples = examples_lib.examples_in_memory(store, config, length, seed)
    seen = {}

    def look(placed, recipe, store):
      seen['placed'] = placed
      return {}

    module = examples_lib.find('corrupt', config.corrupt)
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(module, 'corrupt', look)
      examples.batch(np.arange(len(original_BT)), True)
    placed = seen['placed']
    unit_n = layout.units(placed.text, store)
    self.special = np.isin(original_BT, [store.special[k] for k in ('cls', 'sep')])
    self.real = (batch['example_BT'] > 0) & ~self.special
    self.begins = layout.place(placed, unit_n) > 0
    self.begins[:, 1:] |= self.special[:, :-1]  # a pair may begin inside a unit, having lost tokens
    self.target = np.zeros(original_BT.shape, bool)
    row, slot = np.nonzero(batch['weight_BP'])
    self.target[row, batch['target_pos_BP'][row, slot]] = True
    self.shown, self.original = batch['token_BT'], original_BT
    number = np.cumsum(self.begins & self.real)  # units in reading order, over the rows
    self.unit_BT = number.reshape(original_BT.shape)


def test_characters_are_masked_one_by_one(store):
  config = ernie(mask__word_prob=0.0)
  batch, original = batch_of(store, config)
  m = Masks(store, config, batch, original)
  tokens = m.real.sum()
  assert not (m.target & ~m.real).any()
  np.testing.assert_allclose(m.target.sum() / tokens, 0.15, atol=4 * np.sqrt(0.13 / tokens))
  for share, got in shares(m, m.target).items():
    np.testing.assert_allclose(got, share, atol=4 * np.sqrt(0.16 / m.target.sum()))
  # Neighbours in a unit are independent of each other.
  later = m.real & ~m.begins
  pairs = later[:, 1:] & m.target[:, :-1]
  np.testing.assert_allclose(m.target[:, 1:][pairs].mean(), 0.15, atol=0.04)


def shares(m, at):
  """Expected -> seen share of [MASK], random and kept among these targets."""
  masked = m.shown[at] == SPECIAL['mask']
  kept = m.shown[at] == m.original[at]
  return {0.8: masked.mean(), 0.1: kept.mean(), 0.1001: (~masked & ~kept).mean()}


@mutation(
  'ernie: later tokens of a unit are shown as if they had been chosen themselves',
  'bertjax/data/masking/ernie.py',
  'np.where(lead_c[at_c] == at_c, mask.rate, 1.0)',
  'mask.rate',
)
def test_units_are_masked_whole(store):
  config = ernie(mask__word_prob=1.0)
  batch, original = batch_of(store, config)
  assert not batch['dropped_B'].any()
  m = Masks(store, config, batch, original)
  assert not (m.target & ~m.real).any()
  count = np.bincount(m.unit_BT[m.real])
  hit = np.bincount(m.unit_BT[m.real], m.target[m.real])
  assert set(np.unique(hit[count > 0] / count[count > 0])) == {0.0, 1.0}
  units = (count > 0).sum()
  np.testing.assert_allclose((hit > 0).sum() / units, 0.15, atol=4 * np.sqrt(0.13 / units))
  for at in (m.target & m.begins, m.target & ~m.begins):
    for share, got in shares(m, at).items():
      np.testing.assert_allclose(got, share, atol=4 * np.sqrt(0.16 / at.sum()))
  # Later tokens decide for themselves: a unit is not shown as a whole.
  lead = m.target[:, :-1] & m.begins[:, :-1] & m.target[:, 1:] & ~m.begins[:, 1:]
  shown = m.shown == SPECIAL['mask']
  both = shown[:, :-1][lead] & shown[:, 1:][lead]
  np.testing.assert_allclose(both.mean(), 0.64, atol=4 * np.sqrt(0.23 / lead.sum()))


@mutation(
  'ernie: a unit goes on behind [SEP]',
  'bertjax/data/masking/ernie.py',
  'np.diff(candidate_c) > 1',
  'np.diff(candidate_c) > 2',
)
def test_units_end_at_the_separator(tmp_path):
  """Pairs of one unit each, most cut at the front: A is chosen without regard to B."""
  draw = np.random.default_rng(0)
  documents = [[draw.integers(5, 3000, 80) for _ in range(2)] for _ in range(1500)]
  units = [[np.eye(1, 80)[0] for _ in range(2)] for _ in range(1500)]
  write_store(tmp_path / 's', documents, VOCABULARY, None, units)
  config = ernie(mask__word_prob=1.0, mask__rate=0.5, mask__max_targets=64, short_prob=0.0)
  batch, original = batch_of(open_store(tmp_path / 's'), config, rows=1500)
  m = Masks(open_store(tmp_path / 's'), config, batch, original)
  a = m.target[:, 1]
  b = m.target[np.arange(1500), (batch['example_BT'] > 0).sum(1) - 2]
  assert abs((a == b).mean() - 0.5) < 0.06


def test_random_ids_are_all_but_pad(store):
  config = ernie(mask__mask_share=0.0, mask__random_share=1.0)
  batch, original = batch_of(store, config, rows=2000)
  m = Masks(store, config, batch, original)
  ids = m.shown[m.target]
  assert ids.min() >= 1 and {1, 2, 3, 4} <= set(ids.tolist())
  np.testing.assert_allclose(ids.mean(), 1500, atol=4 * 866 / np.sqrt(len(ids)))


@pytest.mark.parametrize('block', [1, 8, 100])
@mutation(
  'ernie: a coin for every row',
  'bertjax/data/masking/ernie.py',
  'placed.number_B // mask.block',
  'placed.number_B',
)
@mutation(
  'ernie: rows within a batch count from 0',
  'bertjax/data/examples.py',
  '(len(row_n), self.length), row_n, self.seed)',
  '(len(row_n), self.length), None, self.seed)',
)
def test_one_coin_for_a_block_of_rows(store, block):
  config = ernie(mask__block=block, mask__word_prob=0.7)
  batch, original = batch_of(store, config, rows=800)
  m = Masks(store, config, batch, original)
  # A row with a unit hit in part is masked by characters.
  count = np.bincount(m.unit_BT[m.real])
  hit = np.bincount(m.unit_BT[m.real], m.target[m.real])
  broken = (hit > 0) & (hit < count)
  characters = np.array(
    [broken[np.unique(u[r])].any() for u, r in zip(m.unit_BT, m.real, strict=True)]
  )
  blocks = characters.reshape(-1, block)
  found = blocks.any(1)
  assert abs(found.mean() - 0.3) < 4 * np.sqrt(0.21 / len(blocks)) + (0.2 if block == 1 else 0)
  if block > 1:  # most rows of such a block have a unit hit in part
    assert blocks[found].mean() > 0.6
  examples = examples_lib.examples_in_memory(store, config, 64, 1)
  alone = examples.batch(np.arange(300, 310), True)
  np.testing.assert_array_equal(alone['token_BT'], batch['token_BT'][300:310])


def test_slots_that_do_not_suffice_drop_targets_and_count_them(store):
  config = ernie(mask__max_targets=4)
  batch, _ = batch_of(store, config)
  wide, _ = batch_of(store, ernie())
  assert not wide['dropped_B'].any() and batch['dropped_B'].sum() > 100
  used = lambda b: (b['weight_BP'] > 0).sum(1)
  np.testing.assert_array_equal(used(batch) + batch['dropped_B'], used(wide))


def test_a_store_without_units_is_refused(tmp_path):
  write_store(tmp_path / 's', [[[5, 6]], [[7, 8]]], VOCABULARY)
  bare = open_store(tmp_path / 's')
  with pytest.raises(ValueError, match='has no units: .*--lexicon=FILES. or --segmenter'):
    examples_lib.make_examples(bare, ernie(), 64, 0)
  for change in (dict(mask__word_prob=1.5), dict(mask__block=0)):
    with pytest.raises(ValueError, match='word_prob from 0 to 1 and mask.block >= 1'):
      examples_lib.make_examples(bare, ernie(**change), 64, 0)
  assert not (tmp_path / 's/plans').exists()


def columns_of(store, window, seed=0, length=64, **changes):
  config = ernie(dupe_factor=1, **changes)
  pieces = list(ernie_pairs.build(store, config, length, seed, window))
  column = {k: np.concatenate([c[k] for c, _ in pieces]) for k in pieces[0][0]}
  count = collections.Counter()
  for _, counts in pieces:
    count.update(counts)
  return column, count


@mutation(
  'ernie: the last item of a buffer meets the next buffer',
  'bertjax/data/plans/ernie_pairs.py',
  'last_n = (next_n % BUFFER == 0) | (next_n == items)',
  'last_n = next_n == items',
)
@mutation(
  'ernie: second segments first',
  'bertjax/data/plans/ernie_pairs.py',
  "first_n = positive['a_length'][item_n] <= room_n",
  "first_n = positive['b_length'][item_n] > room_n",
)
@mutation(
  'ernie: positives stay swapped',
  'bertjax/data/plans/ernie_pairs.py',
  "swapped_n = column['swapped'] > 0",
  "swapped_n = column['swapped'] > 1",
)
def test_negatives_come_from_the_buffer(store, monkeypatch):
  monkeypatch.setattr(ernie_pairs, 'BUFFER', 100)
  column, count = columns_of(store, 1 << 20)
  again, _ = columns_of(store, 300)
  assert all((column[k] == again[k]).all() for k in column)
  label = column['next']
  assert count['positives'] == (label == 1).sum() > 500
  assert count['negatives'] == (label == 0).sum()
  assert count['positives'] == count['negatives'] + count['long_negatives']
  assert column['length'].max() <= 64 and count['long_negatives'] < 0.2 * count['positives']
  document = lambda start: np.searchsorted(store.sentences[store.documents], start, 'right')
  a, b = document(column['a_start']), document(column['b_start'])
  positive = label == 1
  end = column['a_start'] + column['a_length']
  assert (a == b)[positive].all() and (end <= column['b_start'])[positive].all()
  assert (a == b)[~positive].mean() < 0.05
  # Within a buffer each positive gives one A and one B, and label 1 is spread evenly.
  segments = set(zip(column['a_start'][positive], column['b_start'][positive], strict=True))
  firsts, seconds = ({s[k] for s in segments} for k in (0, 1))
  assert set(column['a_start'][~positive]) | set(column['b_start'][~positive]) <= firsts | seconds
  halves = label[: len(label) // 200 * 200].reshape(-1, 100).mean(1)
  assert 0.3 < halves.min() and halves.max() < 0.7
  # The first segment wherever it fits.
  fits = np.isin(column['a_start'][~positive], list(seconds - firsts))
  a_first = {
    s: n for s, n in zip(column['a_start'][positive], column['a_length'][positive], strict=True)
  }
  of_second = dict((b, a) for a, b in segments)
  for start in column['a_start'][~positive][fits]:
    assert a_first[of_second[start]] > 61 // 2


@mutation(
  'ernie: a cut segment keeps its far end',
  'bertjax/data/plans/ernie_pairs.py',
  "a_start=positive['a_start'] + dropped_n, ",
  '',
)
def test_halves_keep_what_is_next_to_the_border(store):
  whole, _ = columns_of(store, 1 << 20)
  column, count = columns_of(store, 1 << 20, halves=True)
  a, b = column['a_length'], column['length'] - 3 - column['a_length']
  assert max(a.max(), b.max()) == 61 // 2 and min(a.min(), b.min()) >= 1
  assert count['long_negatives'] == 0

  def positives(column):
    c = {k: x[column['next'] == 1] for k, x in column.items()}
    a_end, b_end = c['a_start'] + c['a_length'], c['b_start'] + c['length'] - 3 - c['a_length']
    return {b: (a, end, b_end) for a, end, b, b_end in
            zip(c['a_start'], a_end, c['b_start'], b_end, strict=True)}  # fmt: skip

  before, after, cut = positives(whole), positives(column), 0
  assert before.keys() == after.keys()
  for start, (a, a_end, b_end) in before.items():
    kept = max(a, a_end - 30), a_end, min(b_end, start + 30)
    assert after[start] == kept
    cut += kept[0] - a + b_end - kept[2]
  assert count['cut_tokens'] == cut > 0


def test_pairs_need_two_sentences(tmp_path):
  write_store(tmp_path / 's', [[[5, 6]], [[7, 8]]], VOCABULARY, None, [[[1, 1]], [[1, 1]]])
  with pytest.raises(ValueError, match='documents of two sentences and more, got 2'):
    examples_lib.make_examples(open_store(tmp_path / 's'), ernie(), 64, 0)


def dialogue_batch(store, length=96, **changes):
  config = ernie(plan='dialogues', mask__mask_share=0.0, mask__random_share=0.0, **changes)
  examples = examples_lib.examples_in_memory(store, config, length, 3)
  return examples, examples.batch(np.arange(examples.rows), shuffle=False)


def test_dialogues_are_turns_with_roles(store):
  examples, batch = dialogue_batch(store, length=400, fake_prob=0.0)
  assert not batch['fake_BG'].any() and not batch['type_BT'].any()
  sentences = np.split(store.parts[0], store.sentences[1:-1])
  expected = []
  for a, b in zip(store.documents[:-1], store.documents[1:], strict=True):
    for first in range(a, b, 3):
      if min(first + 3, b) - first > 1:
        turns = range(first, min(first + 3, b))
        tokens, roles = [2], [store.column('role')[first]]
        for t in turns:
          tokens += [*sentences[t], 3]
          roles += [store.column('role')[t]] * (len(sentences[t]) + 1)
        expected.append((tokens, roles))
  assert examples.rows == len(expected)
  for row, (tokens, roles) in enumerate(expected):
    n = len(tokens)
    assert batch['token_BT'][row, :n].tolist() == tokens
    assert batch['role_BT'][row, :n].tolist() == roles
    assert not batch['example_BT'][row, n:].any() and batch['example_BT'][row, :n].all()


@mutation(
  'dialogues: replies of any role',
  'bertjax/data/plans/dialogues.py',
  'good_n = same_role_n & (',
  'good_n = (same_role_n | True) & (',
)
@mutation(
  'dialogues: replies of the same dialogue',
  'bertjax/data/plans/dialogues.py',
  '(other_n < low_n[open_n]) | (other_n >= high_n[open_n])',
  '(other_n < low_n[open_n]) | (other_n >= low_n[open_n])',
)
def test_replies_of_other_dialogues_keep_the_role(store):
  real_ones, whole = dialogue_batch(store, length=400, fake_prob=0.0)
  examples, batch = dialogue_batch(store, length=400)
  fake = batch['fake_BG'][:, 0] == 1
  assert abs(fake.mean() - 0.5) < 4 * np.sqrt(0.25 / len(fake))
  np.testing.assert_array_equal(batch['token_BT'][~fake], whole['token_BT'][~fake])
  document = lambda turn_start: np.searchsorted(
    store.sentences[store.documents], turn_start, 'right'
  )
  column, original = examples.column, real_ones.column
  changed = np.stack([column[f'start_{k}'] != original[f'start_{k}'] for k in range(3)], 1)
  changed &= np.arange(3) < column['turns'][:, None]
  np.testing.assert_array_equal(changed.sum(1), fake)
  assert not changed[:, 0].any() and changed[:, 1].any() and changed[:, 2].any()
  row, k = np.nonzero(changed)
  start = np.stack([column[f'start_{k}'] for k in range(3)], 1)[row, k]
  assert (document(start) != document(column['start_0'][row])).all()
  role_of = lambda s: store.column('role')[np.searchsorted(store.sentences, s, 'right') - 1]
  np.testing.assert_array_equal(role_of(start), store.column('role')[column['turn'][row] + k])


def test_long_dialogues_are_cut_evenly(store):
  examples, batch = dialogue_batch(store, length=28)
  assert examples.column['length'].max() <= 28 and examples.count['truncated_tokens'] > 0
  sizes = np.stack([examples.column[f'size_{k}'] for k in range(3)], 1)
  used = np.arange(3) < examples.column['turns'][:, None]
  assert (sizes[used] > 0).all() and not sizes[~used].any()
  assert (batch['example_BT'] > 0).sum() == examples.column['length'].sum()
  windows = list(examples_lib.find('plan', 'dialogues').build(store, ernie(), 28, 3, 100))
  joined = np.concatenate([c['start_1'] for c, _ in windows])
  np.testing.assert_array_equal(joined, examples.column['start_1'])


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (dict(turns=1), 'turns >= 2'),
    (dict(fake_prob=2.0), 'fake_prob from 0'),
    (dict(turns=40), 'length >= 81'),
  ],
)
def test_wrong_dialogues_are_refused(store, change, message):
  with pytest.raises(ValueError, match=message):
    examples_lib.examples_in_memory(store, ernie(plan='dialogues', **change), 64, 0)


def test_dialogues_need_roles(tmp_path):
  write_store(tmp_path / 's', [[[5, 6]], [[7, 8]]], VOCABULARY)
  with pytest.raises(ValueError, match="no column 'role'"):
    examples_lib.make_examples(
      open_store(tmp_path / 's'), ernie(plan='dialogues', mask__word_prob=0.0), 64, 0
    )


def test_dialogues_train_the_role_table(store):
  """One batch of the config through its objective: finite, with a gradient for each role."""
  c = configs_ernie.get_config('test_dialogues')
  c.model.vocab_size, c.length = store.vocabulary_size, 64
  batch = examples_lib.examples_in_memory(store, c.data, c.length, 0).batch(np.arange(8), True)
  batch.pop('dropped_B')
  objective = mlm.make(c)
  shapes = nn.meta.unbox(jax.eval_shape(objective.init, jax.random.key(0), batch))['params']
  params = jax.tree.map(lambda s: np.random.default_rng(0).normal(0, 0.05, s.shape), shapes)

  def loss(params):
    ctx = Context(jax.random.key(0), np.int32(0), train=False)
    terms = objective.loss(dict(params=params), (), step_lib.with_rows(batch), ctx).terms
    return step_lib.trained_loss(terms, {name: term.weight for name, term in terms.items()})

  value, grads = jax.jit(jax.value_and_grad(loss))(params)
  table_XE = np.asarray(grads['embeddings']['role'])
  assert np.isfinite(value) and table_XE.shape == (2, 64) and np.abs(table_XE).max(1).min() > 1e-4
  assert 'fake' in grads and 'type' not in grads['embeddings']


def test_roles_without_a_row_are_refused(tmp_path):
  documents = [[[5, 6], [7, 8]]] * 4
  write_store(
    tmp_path / 's', documents, VOCABULARY, None, [[[1, 1], [1, 1]]] * 4, dict(role=[[0, 2]] * 4)
  )
  config = configs_ernie.get_config('test_dialogues')
  config.batch_size = config.evals.held_out.batch_size = 8
  with pytest.raises(ValueError, match="for 2 roles, but .* has 3: set .*'role', 3"):
    setup.make_run(config, tmp_path / 's', jax.devices()[:1])


@mutation(
  'records: segments of unrelated pairs share a document',
  'bertjax/data/store/ernie_records.py',
  'sizes += [2] if follows else [1, 1]',
  'sizes += [2]',
)
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
    (b'1 2 6 2;0;0;-1 -1 0 -1;1', 'expected .CLS. A .SEP. B'),
    (b'x', '1 fields'),
  ],
)
def test_wrong_records_are_named(tmp_path, line, message):
  (tmp_path / 'vocab.txt').write_text('[PAD]\t0\n[CLS]\t1\n[SEP]\t2\n[MASK]\t3\na\nb\nc\n[UNK]\n')
  (tmp_path / 'r.txt').write_bytes(b'1 5 2 6 2;0;0;-1 0 -1 0 -1;1\n' + line + b'\n')
  given = dict(input=f'ernie1:{tmp_path}/r.txt', vocab=tmp_path / 'vocab.txt')
  with pytest.raises(SystemExit, match=f'r.txt, line 2: expected a record .*{message}'):
    run(output=tmp_path / 's', **given)
  assert not list(tmp_path.glob('s*'))


def crosswoz(path):
  """Text and roles of the dialogues of a CrossWOZ file."""
  archive = zipfile.ZipFile(path)
  dialogues = json.load(io.TextIOWrapper(archive.open(archive.namelist()[0]), 'utf-8'))
  for dialogue in dialogues.values():
    turns = [(m['content'].replace('\n', ' '), m['role']) for m in dialogue['messages']]
    roles = [0 if role == 'usr' else 1 for _, role in turns]
    yield dict(text='\n'.join(text for text, _ in turns), role=roles)


def test_a_real_dialogue_corpus(shared, tmp_path):
  lines = [json.dumps(d) for d in crosswoz(shared / 'zh/dialogue/crosswoz_val.json.zip')]
  (tmp_path / 'd.jsonl').write_text('\n'.join(lines))
  dialogues = run(
    input=tmp_path / 'd.jsonl',
    vocab=shared / 'tokenizers/ernie-1.0/vocab.txt',
    output=tmp_path / 's',
    columns=['role'],
    split='lines',
    lexicon=f'{shared}/zh/lexicon/thuocl/*.txt',
  )
  held_out = open_store(tmp_path / 's/heldout')
  assert dialogues.meta['sentences'] + held_out.meta['sentences'] == 8458
  examples, batch = dialogue_batch(dialogues, length=128)
  assert (
    examples.rows > 2500 and examples.count['truncated_tokens'] < 0.03 * examples.count['tokens']
  )
  roles = batch['role_BT'][batch['example_BT'] > 0]
  assert set(np.unique(roles)) == {0, 1}
  assert abs(batch['fake_BG'].mean() - 0.5) < 0.04
