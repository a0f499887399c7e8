"""The loss of soft labels against PyTorch, and what it refuses."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from mutation import mutation
from slow_imports import F, torch

from bertjax.errors import UserError
from bertjax.objectives import classify, soft_labels
from bertjax.train.step import trained_loss


@mutation('jax.nn.log_softmax(teacher_V / temperature)', 'jax.nn.log_softmax(teacher_V)')
@pytest.mark.parametrize(('kl', 'hard'), [('sum', 0.3), ('mean', 0.0)])
def test_log_probabilities_teach_what_logits_do(kl, hard):
  """Against Hinton's formula on the teacher's logits."""
  rng, rows, classes, temperature = np.random.default_rng(0), 5, 3, 2.5
  ours, theirs = rng.normal(size=(2, rows, classes)).astype(np.float32) * 3
  label = rng.integers(classes, size=rows)
  given = ConfigDict(dict(hard=hard, soft=0.7, temperature=temperature, kl=kl))
  batch = dict(
    example_weight_BG=np.ones((rows, 1), np.float32), label_BG=label[:, None].astype(np.int32)
  )
  said = jax.nn.log_softmax(theirs)[:, None]

  def loss(x):
    terms = soft_labels.terms(x[:, None], said, batch, given)
    return trained_loss(terms, {name: term.weight for name, term in terms.items()})

  found, gradient = jax.value_and_grad(loss)(jnp.asarray(ours))
  student = torch.tensor(ours, requires_grad=True)
  part = F.kl_div(
    F.log_softmax(student / temperature, -1), F.softmax(torch.tensor(theirs) / temperature, -1),
    reduction='batchmean',
  )  # fmt: skip
  part = part if kl == 'sum' else part / classes
  wanted = hard * F.cross_entropy(student, torch.tensor(label)) + 0.7 * temperature**2 * part
  wanted.backward()
  np.testing.assert_allclose(found, wanted.item(), rtol=1e-5)
  np.testing.assert_allclose(gradient, student.grad, rtol=1e-4, atol=1e-6)


def test_a_number_is_learned_by_its_squared_error():
  given = ConfigDict(dict(hard=0.0, soft=0.5, temperature=9.0, kl='sum'))
  batch = dict(example_weight_BG=np.ones((2, 1), np.float32))
  ours_BGC, theirs_BGC = np.array([[[1.0]], [[2.0]]]), np.array([[[3.0]], [[2.5]]])
  terms = soft_labels.terms(ours_BGC, theirs_BGC, batch, given)
  assert terms.keys() == {'soft'} and terms['soft'].scale == 0.5
  np.testing.assert_allclose(terms['soft'].total, 4.25)


@pytest.mark.parametrize(
  ('name', 'column', 'said'),
  [
    ('soft_labels', '', 'expected config.data.task.soft_label'),
    ('classify', 'said', "is read by config.objective.name='soft_labels' alone, got 'classify'"),
    ('distill', 'said', "alone, got 'distill'"),
  ],
)
def test_a_column_that_nobody_reads_or_that_is_not_named_is_refused(name, column, said):
  model = cases.config('bert', words=False, labels=(('label', 2),)).model
  config = ConfigDict(
    dict(objective=dict(name=name), model=model, data=dict(task=dict(soft_label=column)))
  )
  with pytest.raises(UserError, match=said):
    classify.classes_of(config)
    soft_labels.column_of(config)
