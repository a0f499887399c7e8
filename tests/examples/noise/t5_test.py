"""T5's two texts beside those of the original, for the original's masks; counts, sizes, draws."""

import types

import numpy as np
import pytest
from masking import rows_of
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples import sentinels
from bertjax.examples.noise import t5_deshuffle, t5_prefix, t5_spans, t5_tokens

LENGTHS = (2, 10, 64, 141, 568)


STORE = types.SimpleNamespace(
  sentinels=tuple(range(999, 799, -1)), special=dict(pad=0, sep=1), vocabulary_size=1000
)


def texts(rows, made):
  """The two texts of each example, without their ends."""
  found = []
  for letter, field in (('T', None), ('U', 'target')):
    stream = made[letter]
    ids = stream.field[field] if field else stream.token_m
    own = [ids[rows.example_n[stream.source_m] == e] for e in range(len(rows.length_E))]
    assert all(text[-1] == STORE.special['sep'] for text in own)
    found.append([text[:-1] for text in own])
  return list(zip(*found, strict=True))


@pytest.mark.parametrize(
  ('objective', 'noise', 'options'),
  [
    ('span_3_15', t5_spans, t5_spans.Options(0.15, 3.0, True, False)),
    ('span_10_50', t5_spans, t5_spans.Options(0.5, 10.0, True, False)),
    ('span_to_one_sentinel', t5_spans, t5_spans.Options(0.15, 3.0, False, False)),
    ('iid_15_u_u', t5_tokens, t5_tokens.Options(0.15, 'sentinels', False)),
    ('iid_15_m_f', t5_tokens, t5_tokens.Options(0.15, 'mask', False)),
    ('iid_15_d_d', t5_tokens, t5_tokens.Options(0.15, 'drop', False)),
  ],
)
@mutation('& (rows.position_n > 0)', '', file='bertjax/examples/sentinels.py')
def test_masks_of_the_original_give_its_texts(golden, objective, noise, options, monkeypatch):
  original, _ = golden('t5_denoise')
  read = lambda name: [original[f'{objective}/{n}/{name}'] for n in LENGTHS]
  rows, _ = rows_of(read('tokens'))
  mask_n = np.concatenate(read('mask')).astype(bool)
  monkeypatch.setattr(sentinels, 'span_mask', lambda *_: mask_n)
  monkeypatch.setattr(t5_tokens, 'mask', lambda *_: mask_n)
  wanted = list(zip(read('inputs'), read('targets'), strict=True))
  for got, (inputs, targets) in zip(
    texts(rows, noise.corrupt(rows, options, STORE)), wanted, strict=True
  ):
    np.testing.assert_array_equal(got[0], inputs)
    np.testing.assert_array_equal(got[1], targets)


@mutation('while tokens > 1 and', 'while False and', file='bertjax/examples/noise/t5_spans.py')
def test_counts_are_float32_and_sizes_float64(golden):
  original, _ = golden('t5_data')
  for rate, mean, length, hidden, runs in original['mask_counts']:
    if length > 1:
      assert sentinels.hidden(int(length), rate) == hidden
      assert sentinels.spans(sentinels.hidden(int(length), rate), mean) >= runs
  for length, rate, mean, tokens, _, hidden, runs, *_ in original['helper_table']:
    assert sentinels.taken(int(length), rate, mean) == tokens
    options = t5_spans.Options(rate, mean, True, False)
    made = t5_spans.sizes(options, int(tokens))
    assert made['U'] == hidden + runs + 1 >= 2 and made['T'] <= length + 1
    fills = t5_spans.raw(options, int(length))
    assert t5_spans.sizes(options, fills)['T'] <= length and tokens - 3 < fills <= tokens
  assert t5_spans.sizes(t5_spans.Options(0.15, 3.0, True, False), 568) == dict(T=512, U=114)


@mutation('ranks(drawn_n, example_n) < (parts_E', 'place_n < (parts_E')
def test_every_mask_is_equally_likely(golden):
  rows, _ = rows_of(np.zeros((4000, 12), int))
  mask_EN = sentinels.span_mask(rows, 0.34, 2.0, (5, 6)).reshape(4000, 12)
  wanted = {tuple(mask) for mask in golden('t5_data')[0]['uniform/masks'].astype(bool)}
  found, count = np.unique(mask_EN, axis=0, return_counts=True)
  assert {tuple(mask) for mask in found} == wanted and len(wanted) == 21
  expected = 4000 / 21
  assert ((count - expected) ** 2 / expected).sum() < 45  # 20 degrees, 1 in 1000
  few, _ = rows_of(np.zeros((9, 12), int))
  assert np.array_equal(mask_EN[:9], sentinels.span_mask(few, 0.34, 2.0, (5, 6)).reshape(9, 12))


NOISES = {
  'spans': (t5_spans, t5_spans.Options(0.15, 3.0, True, False)),
  'half': (t5_spans, t5_spans.Options(0.5, 1.0, True, False)),
  **{
    form: (t5_tokens, t5_tokens.Options(0.15, form, False))
    for form in ('sentinels', 'mask', 'bert', 'drop')
  },
  'prefix': (t5_prefix, sentinels.Options(False)),
  'deshuffle': (t5_deshuffle, sentinels.Options(False)),
}


@pytest.mark.parametrize('name', NOISES)
def test_texts_are_no_longer_than_their_sizes_and_lose_nothing(name):
  noise, options = NOISES[name]
  draw = np.random.default_rng(0)
  originals = [draw.integers(4, 700, n) for n in (1, 2, 3, 9, 40, 127, 128, 300, 568)]
  rows, _ = rows_of(originals, seed=3)
  made, sizes = noise.corrupt(rows, options, STORE), noise.MASKING.sizes
  for original, (inputs, targets) in zip(originals, texts(rows, made), strict=True):
    most = sizes(options, len(original))
    assert len(inputs) + 1 <= most['T'] and len(targets) + 1 <= most['U']
    kept = [*inputs[inputs < 800], *targets[targets < 800]]
    if name in ('mask', 'bert', 'deshuffle'):
      np.testing.assert_array_equal(targets, original)
    else:
      assert sorted(kept) == sorted(original)
    if name == 'deshuffle':
      assert sorted(inputs) == sorted(original)
  reads = made['U'].token_m
  first = np.diff(rows.example_n[made['U'].source_m], prepend=-1) > 0
  assert not reads[first].any() and (reads[1:] == made['U'].field['target'][:-1])[~first[1:]].all()
  tokens = noise.MASKING.raw(options, 128)
  longer = sizes(options, tokens + 1)['T']  # at half the original stays below on purpose
  assert sizes(options, tokens)['T'] <= 128 and (longer > 128 or name == 'half')


@mutation('uniform_ids(rows, get_args(Special), store', "uniform_ids(rows, ('pad', 'sep'), store")
def test_prefixes_end_anywhere_and_random_ids_are_no_special_ones():
  rows, _ = rows_of(np.tile(np.arange(10, 20), (3000, 1)))
  made = t5_prefix.corrupt(rows, sentinels.Options(False), STORE)
  lengths = [len(inputs) for inputs, _ in texts(rows, made)]
  count = np.bincount(lengths)[1:]
  assert len(count) == 9 and count[:8].min() > 220 and count[:8].max() < 380
  special = dict(pad=0, sep=1, unk=30, cls=31, mask=98)
  store = types.SimpleNamespace(sentinels=(99,), special=special, vocabulary_size=100)
  made = t5_tokens.corrupt(rows, t5_tokens.Options(0.5, 'bert', False), store)
  shown = np.concatenate([inputs for inputs, _ in texts(rows, made)])
  hidden = (shown < 10) | (shown > 19)
  share = np.mean(shown[hidden] != store.sentinels[0])
  assert 0.08 < share < 0.12 and {*shown} == {*range(100)} - {*special.values()}


def test_a_vocabulary_without_enough_sentinels_is_refused():
  few = types.SimpleNamespace(
    sentinels=(9,), special=STORE.special, vocabulary_size=10, path='the/store'
  )
  for noise, options in (NOISES['spans'], NOISES['sentinels']):
    with pytest.raises(UserError, match='the/store: .* got 1; train one of type t5'):
      noise.MASKING.check(options, few, 100)
  t5_spans.MASKING.check(t5_spans.Options(0.15, 3.0, False, False), few, 100)
