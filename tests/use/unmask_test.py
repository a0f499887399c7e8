"""Texts that a model of masked words writes: passes, order, blocks, draws and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import used_models
from mutation import mutation

import bertjax
from bertjax import sharding
from bertjax.errors import UserError
from bertjax.models.layers import unmasking
from bertjax.models.layers.decoding import FAR, Beams, Sampling
from bertjax.models.layers.unmasking import Unmasking

LIKELIEST = Sampling()
MASK, WORDS = 0, 5  # of the laws below; words are 1 .. 4
PROMPTS = ['w9 w10 w11 w12 w13 w14 w15 w16 w17', 'w20', '', 'w30 w31 w32']


def written(scored, rows, tokens, how, sampling=LIKELIEST, seed=0):
  batch = dict(
    token_BT=jnp.zeros((rows, tokens + 1), jnp.int32).at[:, 0].set(9),
    target_pos_BP=jnp.tile(jnp.arange(1, tokens + 1), (rows, 1)),
    row_B=jnp.arange(rows), seed_B=jnp.full(rows, seed),
  )  # fmt: skip
  run = jax.jit(lambda batch: unmasking.write(scored, batch, tokens, how, sampling))
  return jax.device_get(run(batch))


def equals(token_BT):
  """Two equal words, each alike: what is known of one is known of the other."""
  other_BP = jnp.flip(token_BT[:, 1:], 1)[..., None]
  words = jnp.arange(WORDS)[None, None]
  fits = (words > 0) & ((other_BP == MASK) | (words == other_BP))
  return jnp.where(fits, 0.0, FAR)


@mutation('jax.random.fold_in(key, place))(place_P)', 'key)(place_P)')
def test_words_of_several_passes_are_drawn_from_the_law():
  rows = 2000
  drawn = Sampling(1.0)
  both_BP, score_B = written(equals, rows, 2, Unmasking(2, 'random'), drawn)
  assert (both_BP[:, 0] == both_BP[:, 1]).all()
  np.testing.assert_allclose(score_B, -np.log(4), rtol=1e-5)
  assert abs(np.bincount(both_BP[:, 0], minlength=5)[1:] / rows - 0.25).max() < 0.05
  once_BP, _ = written(equals, rows, 2, Unmasking(1, 'random'), drawn)  # they do not know it yet
  assert (once_BP[:, 0] == once_BP[:, 1]).mean() == pytest.approx(0.25, abs=0.05)
  again_BP, _ = written(equals, rows, 2, Unmasking(1, 'random'), drawn, seed=1)
  assert (again_BP != once_BP).any(1).mean() > 0.8


@mutation('jax.random.fold_in(key, number))(key_B)', 'key)(key_B)')
def test_a_pass_draws_anew_what_the_passes_before_it_left():
  """Of two words, .9 and .1, the more certain one is written first; the other place draws again."""
  logits_V = jnp.array([FAR, np.log(0.9), np.log(0.1), FAR, FAR])
  scored = lambda token_BT: jnp.broadcast_to(logits_V, (len(token_BT), 2, WORDS))
  token_BP, _ = written(scored, 4000, 2, Unmasking(2), Sampling(1.0))
  assert (token_BP == 1).all(1).mean() == pytest.approx(0.99 * 0.9, abs=0.02)


def passes(token_BT):
  """Writes as a word the number of words that are there, and is the surer the later a place is."""
  there_B11 = jnp.sum(token_BT[:, 1:] > 0, 1)[:, None, None]
  sure_P = jnp.arange(token_BT.shape[1] - 1)[None, :, None] + 1.0
  return jnp.where(jnp.arange(40)[None, None] == there_B11 + 1, sure_P, 0.0)


@pytest.mark.parametrize(
  'how, text',
  [
    (Unmasking(), [7, 6, 5, 4, 3, 2, 1]),
    (Unmasking(3), [6, 6, 4, 4, 1, 1, 1]),  # three in the first pass, then two
    (Unmasking(1), [1] * 7),
    (Unmasking(0, 'confidence', 3), [3, 2, 1, 6, 5, 4, 7]),
    (Unmasking(3, 'confidence', 3), [1, 1, 1, 6, 4, 4, 6]),
  ],
  ids=str,
)
@mutation("-logp_BP if how.order == 'confidence'", "logp_BP if how.order == 'confidence'")
@mutation('(number < new_tokens % passes)', '0')
@mutation('jnp.where(hidden_BP, block_P[None], new_tokens)', 'jnp.where(hidden_BP, 0, new_tokens)')
def test_each_pass_writes_its_share_the_surest_first_and_blocks_in_order(how, text):
  token_BP, _ = written(passes, 2, 7, how)
  assert token_BP.tolist() == [text] * 2


@mutation('else order_BP', 'else -logp_BP')
def test_the_random_order_is_each_rows_own():
  token_BP, _ = written(passes, 400, 6, Unmasking(0, 'random'))
  assert (np.sort(token_BP) == np.arange(1, 7)).all()
  assert abs(token_BP.mean(0) - 3.5).max() < 0.4


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  return used_models.make(tmp_path_factory.mktemp('diffusion'), 'diffusion', labels=()).workdir


def load(workdir, **sizes):
  count = int(np.prod(list(sizes.values()) or [1]))
  mesh = sharding.make_mesh(dict(data=1, fsdp=1, tensor=1) | sizes, jax.devices()[:count])
  return bertjax.Model.load(workdir, mesh=mesh)


@pytest.fixture(scope='module')
def model(run):
  return load(run)


DRAWN: dict = dict(sampling=Sampling(1.0, 50), unmasking=Unmasking(2, 'random', 2))


@pytest.mark.parametrize('how', [{}, DRAWN], ids=['likeliest', 'drawn'])
@mutation('row_B=(index_B + first - 1)', 'row_B=(index_B * first)', case='drawn')
def test_a_text_is_what_its_prompt_gives_alone(model, how):
  found = model.generate(PROMPTS, 4, ends=False, **how)
  (alone,) = model.generate(PROMPTS[3:], 4, ends=False, first=4, **how)
  assert found[3].tokens == alone.tokens and len(alone.tokens) == 4
  assert found[3].score == pytest.approx(alone.score, abs=1e-4)
  for text in found:
    assert not set(text.tokens) & {'[PAD]', '[CLS]', '[SEP]', '[MASK]'}
    assert text.text.split() == [word for word in text.tokens if word != '[UNK]']
  assert model.generate([]) == []


@mutation('range(begin, begin + new_tokens)', 'range(begin - 1, begin + new_tokens - 1)')
@mutation('*frame.after], np.int32)', '], np.int32)', file='bertjax/use/unmask.py')
def test_one_token_is_what_fills_a_blank_before_the_end(model):
  (text,) = model.generate(PROMPTS[:1], 1, ends=False)
  ((candidates,),) = model.fill([f'{PROMPTS[0]} [MASK]'], top=10_000)
  never = {'[PAD]', '[CLS]', '[SEP]', '[MASK]'}
  allowed = [each for each in candidates if each.token not in never]
  assert text.tokens == [allowed[0].token]
  share = allowed[0].probability / sum(each.probability for each in allowed)
  assert text.score == pytest.approx(np.log(share), abs=1e-4)


@pytest.mark.full
def test_texts_are_the_same_on_a_mesh(run, model):
  one, many = (m.generate(PROMPTS, 4, **DRAWN) for m in (model, load(run, data=2, tensor=2)))
  assert [text.tokens for text in one] == [text.tokens for text in many]


def test_prompts_of_a_bucket_are_compiled_once(model):
  model.generate(['w9', 'w10 w11'], 5)
  before = len(model.runner._compiled)
  model.generate(['w12 w13', 'w9'], 5, seed=3)
  assert len(model.runner._compiled) == before


@mutation('if any(blank in prompt for blank in blanks):', 'if blanks <= {prompt}:')
def test_what_cannot_be_written_is_refused(model, tmp_path):
  for changes, message in (
    (dict(new_tokens=0), 'new_tokens: expected 1 at least'),
    (dict(seed=-1), 'seed: expected from 0'),
    (dict(sampling=Sampling(0.0, 5)), 'set temperature'),
    (
      dict(beams=Beams(2)),
      r'in the place of masks: expected no beams \(--beams\), got 2.* --steps',
    ),
    (dict(unmasking=Unmasking(5)), '^steps: expected from 1 to the 4 tokens.*got 5'),
    (dict(unmasking=Unmasking(2, block=6)), '^block: expected from 1 to the 4 tokens.*got 6'),
    (dict(unmasking=Unmasking(2, 'last')), "expected 'confidence' or 'random', got 'last'"),
    (dict(new_tokens=500), 'prompt 2 has 2 tokens and 500 more.* in all, with 1 behind'),
  ):
    with pytest.raises(UserError, match=message):
      model.generate(['w9'], **dict(new_tokens=4, first=2) | changes)
  with pytest.raises(UserError, match=r'prompt 3 has a blank.* expected none of \[MASK\]; '):
    model.generate(['w9', 'w9 [MASK] w8'], first=2)
  first = ('<unk>', '<pad>', '<cls>', '<sep>', 'w4')
  bare = load(used_models.make(tmp_path / 'bare', 'diffusion', first=first, labels=()).workdir)
  with pytest.raises(UserError, match='in the place of mask tokens, which its vocabulary has none'):
    bare.generate(['w9'])
  gpt = load(used_models.make(tmp_path / 'gpt', 'gpt', first=used_models.STREAM).workdir)
  with pytest.raises(UserError, match=r'to write, .* leave out .* \(--steps, .*--beams'):
    gpt.generate(['w9'], unmasking=Unmasking(2))
