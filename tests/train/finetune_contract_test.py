"""What every kind of fine-tuning must keep: see contract_test."""

import functools

import contract
import labelled_cases
import pytest
from mutation import mutation
from tiers import in_tiers

# Of heads for tokens the quick tier has the gradients in tests/objectives/heads_test.
QUICK = ('pairs',)
CASES = in_tiers(labelled_cases.CASES, set(labelled_cases.CASES) - set(QUICK))
# What they leave as it is.
FROZEN = dict(probe=('embeddings/', 'encoder/'), elmo=('forwards_', 'backwards_', 'spelled/'))


@pytest.fixture(scope='module')
def reference_of(tmp_path_factory):
  files = labelled_cases.write(tmp_path_factory.mktemp('files'))

  @functools.cache
  def make(name):
    config = labelled_cases.config(name, files)
    path = labelled_cases.ensured(config, tmp_path_factory.mktemp('run'))
    return contract.steps_of(config, path)

  return make


@pytest.fixture(params=CASES)
def reference(request, reference_of):
  return reference_of(request.param)


def test_the_loss_is_finite_and_moves(reference):
  contract.check_moves(reference)


@mutation('(name, classes)(read)', '(name, classes)(jax.lax.stop_gradient(read))', case='pairs')
def test_every_parameter_receives_a_gradient_but_of_what_is_frozen(reference):
  kinds = (reference.config.objective.name, reference.config.model.name)
  contract.check_learns(reference, next((FROZEN[kind] for kind in kinds if kind in FROZEN), ()))


def test_save_and_resume_is_bitwise(reference, tmp_path):
  contract.check_resume(reference, tmp_path)


@pytest.mark.full
@mutation('jax.lax.psum(x, axes) if axes else x', 'x', case='texts, pooled')
def test_a_divided_model_and_microbatches_change_nothing(reference):
  alone = reference.config.model.name == 'awd_lstm'  # the rows of a batch know of each other
  contract.check_agrees(reference, contract.MIXED | {'microbatches': 1 if alone else 2})
