"""Scores and states of every m-th layer, against TinyBERT's formulas in PyTorch."""

import math

import cases
import numpy as np
import parity
import pytest
import taught_models
from mutation import mutation
from slow_imports import F, torch

from bertjax.errors import UserError
from bertjax.objectives import layerwise
from bertjax.types import FIT
from configs.distill import tinybert


def config():
  return taught_models.config(tinybert.get_config('4l_312').objective)


def run(model, batch):
  """States [L + 1, B, T, D] and scores [L, B, N, T, S] before the softmax, 0 at padding keys."""
  kept, out = taught_models.run(model, batch)
  heads = model.config.num_attention_heads
  split = lambda x: torch.stack(x.chunk(heads, -1), 1)
  scores = torch.stack(
    [split(q) @ split(k).mT / math.sqrt(q.shape[-1] // heads)
     for q, k in zip(kept['query'], kept['key'], strict=True)]
  )  # fmt: skip
  padding_BS = torch.tensor(batch['example_BT'] == 0)
  return torch.stack(out.hidden_states), scores.masked_fill(padding_BS[:, None, None], 0.0)


def fixed(gradients_or_params, fit):
  """Ours with the dense layer, a torch Linear or its gradient."""
  weight, bias = fit
  made = dict(kernel=weight.detach().numpy().T, bias=bias.detach().numpy())
  return dict(gradients_or_params, **{FIT: made})


@pytest.mark.parametrize(
  'lengths', [(17, 40, 9), pytest.param((40, 40), marks=pytest.mark.full)], ids=str
)
@mutation('(each - 1, teacher.layers, each)', '(0, teacher.layers, each)', case='(40, 40)')
@mutation(
  'state_error(states(theirs)[::each], fitted_LBTD)',
  'state_error(states(theirs)[each - 1 :: each][: student.layers + 1], fitted_LBTD[: 2])',
  case='(40, 40)',
)
@mutation(
  'jnp.sum(jnp.square(wanted_BNTS - found_BNTS), -1) / length',
  'jnp.mean(jnp.square(wanted_BNTS - found_BNTS), -1, where=wanted_BNTS != 0)',
  case='(17, 40, 9)',
)
@mutation(
  "real_BT = (batch['example_BT'] > 0)",
  "real_BT = (batch['example_BT'] >= 0)",
  file='bertjax/objectives/layerwise.py',
  case='(17, 40, 9)',
)
def test_layers_are_learned_as_tinybert_does(lengths):
  """general_distill.py: MSELoss of scores and of states through fit_dense; in full rows its means
  are ours."""
  c = config()
  student, teacher = taught_models.pair(c)
  fit = torch.nn.Linear(24, 36)
  batch = cases.batch([(n,) for n in lengths], 40, types=3)
  mine, found = run(student, batch)
  with torch.no_grad():
    theirs, wanted = run(teacher, batch)
  real = torch.tensor(batch['example_BT'] > 0)
  of_real = lambda x: x[real]
  loss = torch.tensor(0.0)
  for i in range(2):
    by_token = lambda x: of_real(x.transpose(1, 2))
    loss = loss + F.mse_loss(by_token(found[i]), by_token(wanted[2 * i + 1]))
  for i in range(3):
    loss = loss + F.mse_loss(of_real(fit(mine[i])), of_real(theirs[2 * i]))
  if min(lengths) == 40:
    whole = sum(F.mse_loss(found[i], wanted[2 * i + 1]) for i in range(2))
    whole += sum(F.mse_loss(fit(mine[i]), theirs[2 * i]) for i in range(3))
    assert abs(whole.item() - loss.item()) < 1e-5 * loss.item()
  loss.backward()
  gradients = taught_models.gradients_of(student, c.model)
  params = taught_models.ours_of(student.state_dict(), c.model)
  value, ours = parity.loss_and_gradients(
    layerwise.make(c), fixed(params, (fit.weight, fit.bias)), batch,
    teacher=taught_models.ours_of(teacher.state_dict(), c.objective.teacher.model),
  )  # fmt: skip
  assert abs(value - loss.item()) <= parity.LOSS * loss.item()
  parity.close_gradients(ours, fixed(gradients, (fit.weight.grad, fit.bias.grad)))


@mutation(
  'jnp.sum(jnp.square(wanted_BNTS - found_BNTS), -1) / length',
  'jnp.mean(jnp.square(wanted_BNTS - found_BNTS), -1)',
)
def test_an_example_has_one_loss_whatever_the_length_of_its_batch():
  objective, losses = layerwise.make(config()), []
  params, theirs = taught_models.random_both(objective, cases.batch([(17,)], 40))
  for length in (40, 24):
    batch = cases.batch([(17,)], length)
    losses.append(parity.loss_of(objective, batch, teacher=theirs)(params)[0])
  np.testing.assert_allclose(*losses, rtol=1e-5)


REFUSED = dict(
  layers=(lambda c: c.objective.teacher.model.update(layers=5), 'a multiple of the 2'),
  heads=(lambda c: c.model.update(heads=4), 'has 3 heads, the student 4'),
  tags=(lambda c: c.model.update(token_labels=(('tag', 2),)), 'token_labels=.., got .. and ...tag'),
)


@pytest.mark.parametrize('case', REFUSED)
@mutation(
  'if teacher.layers % student.layers:', 'if teacher.layers < student.layers:', case='layers'
)
def test_what_cannot_be_compared_is_refused(case):
  change, said = REFUSED[case]
  c = config()
  layerwise.make(c)
  change(c)
  with pytest.raises(UserError, match=said):
    layerwise.make(c)
