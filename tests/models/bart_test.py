"""BART beside transformers: logits, losses, gradients and texts of the same weights."""

import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch_models
from ml_collections import ConfigDict
from mutation import mutation
from slow_imports import torch

from bertjax import models
from bertjax.errors import UserError
from bertjax.formats import config_json, tables
from bertjax.formats.families import bart as family
from bertjax.kernels.cross_entropy import logits
from bertjax.models.layers import decoding
from bertjax.text.sentences import pair_frame

BEGIN, CLS, PAD = 2, 0, 1
NEW = 8


@pytest.fixture(scope='module')
def case():
  theirs = torch_models.build('BartForConditionalGeneration', 0.3)
  with torch.no_grad():  # else one token is the likeliest everywhere
    for name, x in theirs.model.decoder.named_parameters():
      if name.endswith('bias'):
        x.zero_()
      louder = {'encoder_attn.out_proj': 0.1, 'self_attn.out_proj': 3.0, 'fc2': 3.0}
      x.mul_(next((by for part, by in louder.items() if part in name), 1.0))
    theirs.model.decoder.embed_positions.weight.mul_(30)
  _, fields = config_json.read(theirs.config.to_dict(), set())
  config = ConfigDict(dict(fields, dropout=0.0, remat='none', dtype='float32', zero_row=None))
  ours = lambda state: tables.to_ours(
    {name: np.asarray(x.detach()) for name, x in state}, family.layout(config).rows, config
  )
  draw = np.random.default_rng(0)
  length_B = np.array([11, 4, 7])
  real_BT = np.arange(11) < length_B[:, None]
  token_BT = np.where(real_BT, draw.integers(5, 211, (3, 11)), PAD)
  target_BU = draw.integers(5, 211, (3, 9))
  return types.SimpleNamespace(
    theirs=theirs, ours=ours, model=models.build(config), token_BT=token_BT, real_BT=real_BT,
    target_BU=target_BU,
  )  # fmt: skip


@mutation('x_BTD + place_XD[position_BT + OFFSET]', 'x_BTD + place_XD[position_BT]')
@mutation('self.width**0.5 if self.scaled else 1.0', '1.0')
def test_losses_and_gradients_are_those_of_transformers(case):
  place = lambda x_BT: np.broadcast_to(np.arange(x_BT.shape[1]), x_BT.shape)
  read_BU = np.pad(case.target_BU[:, :-1], ((0, 0), (1, 0)), constant_values=BEGIN)
  batch = dict(
    token_BT=case.token_BT, example_BT=case.real_BT.astype(np.int32),
    position_BT=place(case.token_BT), out_token_BU=read_BU, out_example_BU=np.ones_like(read_BU),
    out_position_BU=place(read_BU),
  )  # fmt: skip
  batch = jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), batch)
  params = jax.tree.map(jnp.asarray, case.ours(case.theirs.named_parameters()))
  shapes = nn.meta.unbox(jax.eval_shape(case.model.init, jax.random.key(0), batch))['params']
  assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, shapes)
  ones_BU = np.ones(case.target_BU.shape, np.float32)
  (found, ours), gradient = parity.word_gradients(
    case.model, params, batch, case.target_BU, ones_BU
  )
  tensor = lambda x: torch.tensor(np.array(x), dtype=torch.long)
  out = case.theirs(
    tensor(case.token_BT), tensor(case.real_BT), tensor(read_BU), labels=tensor(case.target_BU)
  )
  out.loss.backward()
  np.testing.assert_allclose(found, float(out.loss.detach()), rtol=1e-6)
  np.testing.assert_allclose(
    logits(ours['word'])[..., :211], out.logits.detach().numpy(), atol=3e-4, rtol=1e-4
  )
  named = [(name, x.grad) for name, x in case.theirs.named_parameters() if x.grad is not None]
  wanted = case.ours(named)
  for path, theirs in jax.tree_util.tree_leaves_with_path(wanted):
    mine = gradient
    for key in path:
      mine = mine[key.key]
    if path[0].key == 'word':  # the look-up of [PAD] passes no gradient there, columns of it none
      theirs, mine = theirs[2:], mine[2:]
    size = max(1e-2, float(np.abs(theirs).max()))
    np.testing.assert_allclose(mine, theirs, atol=2e-4 * size, err_msg=str(path))


@mutation('(self.begin, *self.before)', '(self.begin,)')
def test_texts_are_those_of_transformers(case):
  variables = dict(params=jax.tree.map(jnp.asarray, case.ours(case.theirs.named_parameters())))
  start = pair_frame(True, dict(cls=CLS, sep=BEGIN)).start
  reads = dict(
    token_BT=jnp.asarray(case.token_BT, jnp.int32), example_BT=jnp.asarray(case.real_BT, jnp.int32),
    out_token_BU=jnp.tile(jnp.array([start], jnp.int32), (3, 1)),
  )  # fmt: skip
  tensor = lambda x: torch.tensor(np.array(x), dtype=torch.long)
  wanted = case.theirs.generate(
    tensor(case.token_BT), attention_mask=tensor(case.real_BT), do_sample=False,
    max_new_tokens=NEW + 1, forced_bos_token_id=CLS, forced_eos_token_id=None,
    no_repeat_ngram_size=0, num_beams=3,
  ).numpy()[:, 2:]  # fmt: skip
  beams = decoding.Beams(3, 1.0, 'transformers')
  function = lambda v, b: decoding.written(
    case.model, 211, beams, NEW, BEGIN, case.model.for_writing(v), b
  )
  found = jax.jit(function)(variables, reads).token_BKN[:, 0]
  assert len(np.unique(wanted)) > 2
  for mine, theirs in zip(np.asarray(found), wanted, strict=True):
    mine, theirs = (decoding.until(each, BEGIN) for each in (mine, theirs))
    assert mine == theirs[: len(mine)]


@mutation('    self.require_room(columns, ', '    self.require_room(0, ')
def test_texts_longer_than_the_positions_are_refused(case):
  parts = ('token', 'example', 'position')
  names = [name for part in parts for name in (f'{part}_BT', f'out_{part}_BU')]
  sizes = dict(T=9, U=46)
  batch = {name: jax.ShapeDtypeStruct((1, sizes[name[-1]]), jnp.int32) for name in names}
  with pytest.raises(UserError, match='target_length asks for 46 columns, .* room for 45'):
    jax.eval_shape(case.model.init, jax.random.key(0), batch)
