"""XLNet against PyTorch `transformers` (eager attention, float32, evaluation mode)."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import state_dicts
from mutation import mutation
from parity import HIDDEN, LOGITS, LOSS, close, close_gradients, gradients_of
from slow_imports import torch
from xlnet_cases import LENGTH, MEMORY, ROWS, make_case, torch_inputs

from bertjax.kernels.cross_entropy import logits
from bertjax.models import xlnet
from bertjax.models.layers.memory import Memory
from bertjax.objectives import plm

# 3 segments, 3 heads of 12 in 3 layers, and a row of padding alone.
ODD = dict(lengths=(17, LENGTH, 0, 20), layers=3, width=36, heads=3, ffn=52)


@pytest.mark.parametrize(
  'kind, fields',
  [
    ('large', dict()),
    ('plain', dict(both=True)),
    pytest.param('norm', dict(), marks=pytest.mark.full),
    pytest.param('large', dict(both=True, clamp_len=7), marks=pytest.mark.full),
    pytest.param('large', ODD, marks=pytest.mark.full),
  ],
)
@mutation('push(memory_BMD, h_BTD, self.reuse_len)', 'push(memory_BMD, h_BTD)')
@mutation('(example_BT, example_BS, **orders)', '(example_BT, example_BS, **orders, see_self=True)')
@mutation("pad(batch['type_BT'], before)", "pad(batch['type_BT'], before, constant_values=9)")
def test_equals_transformers(kind, fields):
  """Two batches in a row, the second with the memory that the first left."""
  c, state, batches, model = make_case(kind, **fields)
  params = state_dicts.from_huggingface(state, c.model)
  objective = plm.make(c)

  @jax.jit
  def run(variables, batch, memory):
    out = xlnet.make(c.model).apply(variables, batch, memory, hidden=True)
    return dict(out, logits_BPV=logits(out['word']))

  memory, mems = objective.carry(batches[0]), None
  step = jax.jit(lambda params, batch, memory: gradients_of(objective, batch, memory)(params))
  for batch in batches:
    ours = run(dict(params=params), batch, memory)
    model.zero_grad()
    inputs = torch_inputs(batch)
    theirs = model(**inputs, mems=mems, use_mems=True, output_hidden_states=True)
    theirs.loss.backward()
    real, used = batch['example_BT'] > 0, batch['weight_BP'] > 0
    # Theirs are content, query, content, query, ..., the inputs of the first layer first.
    streams = [h.detach().numpy() for h in theirs.hidden_states]
    for layer, (h_BTD, g_BPD) in enumerate(zip(streams[2::2], streams[3::2], strict=True)):
      ours_BXD = np.asarray(ours['hidden_LBXD'][layer])
      close(ours_BXD[:, :LENGTH][real], h_BTD[real], HIDDEN, f'content {layer}')
      close(ours_BXD[:, LENGTH:][used], g_BPD[used], HIDDEN, f'query {layer}')
    logits_BPV = np.asarray(ours['logits_BPV'])[..., : cases.VOCAB]
    close(logits_BPV[used], theirs.logits.detach().numpy()[used], LOGITS, 'logits')

    (loss, out), grads = step(params, batch, memory)
    assert abs(loss - theirs.loss.item()) <= LOSS * theirs.loss.item()
    mems = [m.detach() for m in theirs.mems]
    for layer, mem in enumerate(mems):
      kept_BM = np.asarray(out.carry.example_BM) > 0
      ours_BMD = np.asarray(out.carry.hidden_BLMD[:, layer])
      close(ours_BMD[kept_BM], mem.numpy().transpose(1, 0, 2)[kept_BM], HIDDEN, f'memory {layer}')
    # Theirs shows padding that it remembers; ours does not, so let both see all of it.
    memory = Memory(
      jnp.asarray(np.stack(mems, 1).transpose(2, 1, 0, 3)), jnp.ones((ROWS, MEMORY), int)
    )
    found = {k: p.grad.numpy() for k, p in model.named_parameters()}
    close_gradients(grads, state_dicts.from_huggingface(found, c.model))


@mutation("int(start == 'zeros')", '0')
@mutation("start == 'zeros' or 'start_B' not in batch", "'start_B' not in batch")
@mutation("Start = 'zeros'", "Start = 'empty'")
def test_memory_begins_as_zeros_and_no_epoch_clears_it():
  """XLNet's own default: transformers with memory of zeros given to it, and then what it left."""
  whole = (LENGTH,) * ROWS  # padding is seen there, not here
  c, state, batches, model = make_case('large', lengths=whole)
  c.objective.memory = cases.config('xlnet').objective.memory
  objective, params = plm.make(c), state_dicts.from_huggingface(state, c.model)
  predict, memory = jax.jit(objective.predict), objective.carry(batches[0])
  mems = [torch.zeros(MEMORY, ROWS, c.model.width)] * c.model.layers
  for batch in batches:
    batch = dict(batch, start_B=np.ones(ROWS, np.int32))
    ours = predict(dict(params=params), memory, batch)
    with torch.no_grad():
      theirs = model(**torch_inputs(batch), mems=mems, use_mems=True)
    used, ours_BPV = batch['weight_BP'] > 0, np.asarray(ours['logits_BPV'])[..., : cases.VOCAB]
    close(ours_BPV[used], theirs.logits.numpy()[used], LOGITS, 'logits')
    memory, mems = ours['carry'], theirs.mems
