"""XLM, bidirectional and causal, against the numbers of facebookresearch/XLM: rows of one language
and of two with positions that begin anew, tables of languages and none."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import original_goldens as goldens
import parity
import pytest
import state_dicts
from flax.core import meta
from mutation import mutation

from bertjax.objectives import mlm


def batch_of(file: goldens.Golden, case: str) -> dict[str, np.ndarray]:
  """The batch of a case; theirs has time first, and pads only behind a row."""
  get = lambda name: file.found[f'{case}/{name}'].T
  chosen_BT, targets_BT = get('pred_mask'), get('y')
  rows, slots = len(chosen_BT), int(chosen_BT.sum(1).max())
  batch = dict(
    token_BT=get('x'), position_BT=get('positions'), language_BT=get('langs'),
    example_BT=(np.arange(chosen_BT.shape[1]) < get('lengths')[:, None]).astype(np.int32),
    type_BT=np.zeros_like(get('x')), target_pos_BP=np.zeros((rows, slots), np.int32),
    target_BP=np.zeros((rows, slots), np.int32), weight_BP=np.zeros((rows, slots), np.float32),
    masked_BP=np.zeros((rows, slots), np.float32), first_BG=np.zeros((rows, 1), np.int32),
    example_weight_BG=np.ones((rows, 1), np.float32),
  )  # fmt: skip
  for row, column_n in enumerate(map(np.flatnonzero, chosen_BT)):
    used = slice(0, len(column_n))
    batch['target_pos_BP'][row, used] = column_n
    batch['target_BP'][row, used] = targets_BT[row, column_n]
    batch['weight_BP'][row, used] = 1
  return batch


def params_of(file: goldens.Golden, c, prefix: str):
  """What stands under a prefix; transformers' names are the originals' behind `transformer.`."""
  tree = file.tree(prefix).items()
  own = {n if n.startswith('pred_layer') else f'transformer.{n}': x for n, x in tree}
  return state_dicts.from_huggingface(own, c.model)


@pytest.mark.parametrize(
  'name, case',
  [('xlm_model', 'bidirectional'), ('xlm_model', 'causal'), ('xlm_model_relu', 'bidirectional')],
)
@mutation('norm_eps=1e-12', 'norm_eps=1e-5', file='configs/xlm.py', case='xlm_model-bidirectional')
@mutation("[batch[f'{name}_BT']]", "[0 * batch[f'{name}_BT']]", case='xlm_model-causal')
def test_the_numbers_of_xlm(name, case, shared):
  """Hidden states, losses, and the gradients of every leaf."""
  file = goldens.load(shared, name)
  given, langs = file.given, file.given['n_langs']
  c = cases.config(
    'xlm', vocab_size=given['n_words'], layers=given['n_layers'], width=given['emb_dim'],
    heads=given['n_heads'], ffn=given['hidden_dim'], positions=512,
    activation='gelu_erf' if given['gelu_activation'] else 'relu',
    extra=(('language', langs),) if langs > 1 else (),
    attend='causal' if case == 'causal' else 'example',
  )  # fmt: skip
  batch, get = batch_of(file, case), lambda name: file.found[f'{case}/{name}']
  params = jax.tree.map(jnp.asarray, params_of(file, c, 'param'))
  out, loss, grads = parity.our_run(c, params, batch)
  real_BT = batch['example_BT'] > 0
  last_BTD = np.where(real_BT[..., None], out['last_BTD'], 0)
  goldens.near(last_BTD, get('hidden').transpose(1, 0, 2), goldens.HIDDEN, 'the hidden state')
  log_p_BPV = np.asarray(jax.nn.log_softmax(out['logits_BPV']))
  nll_BP = -np.take_along_axis(log_p_BPV, batch['target_BP'][..., None], 2)[..., 0]
  used_BP, wanted_BT = batch['weight_BP'] > 0, get('nll').T
  at_BP = np.take_along_axis(wanted_BT, batch['target_pos_BP'], 1)
  goldens.near(nll_BP[used_BP], at_BP[used_BP], goldens.NLL, 'nll')
  goldens.near(np.float32(loss), get('loss'), goldens.NLL, 'loss')
  goldens.near_gradients(grads, params_of(file, c, f'{case}/grad'), case)


@mutation('return init, init', 'return init, jax.nn.initializers.zeros')
def test_initial_values_are_those_of_the_original():
  """Tables N(0, 1/d), <pad> zero; torch's Linear elsewhere: U(+-1/sqrt(inputs)), biases too."""
  c = cases.config('xlm')
  c.model.extra, c.model.zero_row = (('language', 4),), 2  # XLM's <pad>
  batch = cases.batch([[8]], 8) | dict(language_BT=np.zeros((1, 8), np.int32))
  params = meta.unbox(jax.jit(mlm.make(c).init)(jax.random.key(0), batch))['params']
  word = np.asarray(params['embeddings']['word'])
  assert not word[2].any() and word[3].any()
  assert word[3 : c.model.vocab_size].std() == pytest.approx(64**-0.5, rel=0.03)
  layers = params['encoder']['layers']
  for path, inputs in (
    (layers['attention']['query'], 64),
    (layers['attention']['out'], 64),
    (layers['ffn_up'], 64),
    (layers['ffn_down'], 256),
    (dict(kernel=params['mlm']['bias'], bias=params['mlm']['bias']), 64),
  ):
    for leaf in (np.asarray(path['kernel']), np.asarray(path['bias'])):
      assert abs(leaf).max() <= inputs**-0.5
      assert leaf.std() == pytest.approx(inputs**-0.5 / 3**0.5, rel=0.12)
