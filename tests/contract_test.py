"""What every config must keep, walked over all of configs/: a new config is a new row by itself."""

import functools
import json
import re

import contract
import jax
import numpy as np
import pytest
from contract import MIXED, REPLICAS, Reference, steps_of
from ml_collections import ConfigDict
from mutation import mutation
from systems import NAMES, tiny
from tiers import in_tiers

from bertjax.train import first_state, setup
from bertjax.train import loop as train_loop

# Of systems that have a row of their own, or whose masks, heads or layers alone are theirs: in the
# full tier. The quick one has ULMFiT's in models/awd_lstm_test, SpanBERT's in span_boundary_test,
# ALBERT's in models/sharing_test, ELECTRA's in objectives/rtd_test and DeBERTa's in deberta_test.
VARIANTS = (
  'albert', 'bart', 'bert_lamb', 'bigbird', 'deberta_v3', 'diffusion', 'electra',
  'electra_two_stage', 'ernie', 'longformer', 'mass', 'mbert', 'quickstart', 'roberta', 'spanbert',
  'speedrun', 'ulmfit', 'xlm_e', 'xlm_r',
)  # fmt: skip
CONFIGS = in_tiers(NAMES, VARIANTS)


def whole(name: str, rich_store, **fields) -> ConfigDict:
  """Returns a run of six steps with checkpoints and evaluations. The checks of a config take their
  steps from it, so that its step is compiled once for all."""
  few = dict(total_steps=6, log_steps=2, eval_steps=4, checkpoint_steps=4)
  rows = {'evals.held_out.examples': 8}
  if 'pseudo_perplexity' in tiny(name).evals:
    rows['evals.pseudo_perplexity.rows'] = 1
  return tiny(name, **few, **rows, **{'data.store': str(rich_store)}, **fields)


def losses(config: ConfigDict, rich_store, devices: int = 1) -> np.ndarray:
  """Those of `steps_of`."""
  return steps_of(config, rich_store, devices).losses


@functools.cache
def reference_of(name: str, rich_store) -> Reference:
  """One compile serves the checks of a config."""
  return steps_of(whole(name, rich_store), rich_store)


@pytest.fixture(params=CONFIGS)
def reference(request, rich_store):
  return reference_of(request.param, rich_store)


def test_the_loss_is_finite_and_moves(reference):
  contract.check_moves(reference)


# The full tier has all configs and the other kinds of collectives.
@pytest.mark.parametrize('name', ['bert'])
def test_replicas_and_microbatches_change_nothing(name, rich_store):
  contract.check_agrees(reference_of(name, rich_store), REPLICAS | {'microbatches': 2})


@pytest.mark.full
@pytest.mark.parametrize(
  'fields',
  [
    REPLICAS | {'microbatches': 2},
    {'microbatches': 4},
    MIXED | {'microbatches': 2},
    {'mesh.data': 8},
    {'mesh.tensor': 8},
    {'mesh.data': 2, 'mesh.tensor': 4},
  ],
  ids=str,
)
def test_meshes_and_microbatches_change_nothing(reference, fields):
  contract.check_agrees(reference, fields)


@pytest.mark.full
@pytest.mark.parametrize('name', ['bert', 'modernbert', 'electra', 'xlm'])
@mutation("  ('length', 'sequence'),\n", "  ('length', 'nothing'),\n")
def test_divided_columns_change_nothing(name, rich_store):
  one = losses(tiny(name), rich_store)
  fields = {'mesh.data': 2, 'mesh.tensor': 2, 'mesh.sequence': 2}
  many = losses(tiny(name, **fields), rich_store, devices=8)
  np.testing.assert_allclose(many, one, rtol=2e-6)


@pytest.mark.parametrize(
  'name, fields, said',
  [
    ('xlnet', {}, 'has others beside them'),
    ('bert', {'length': 62, 'mesh.sequence': 4}, 'must be a multiple of config.mesh.sequence=4'),
  ],
)
def test_columns_that_cannot_be_divided_are_refused(name, fields, said, rich_store):
  config = tiny(name, **{'mesh.data': 1, 'mesh.sequence': 2, **fields})
  config.phases = {}
  with pytest.raises(ValueError, match=said):
    setup.make_run(config, rich_store, jax.devices()[: config.mesh.sequence])


@mutation('jax.random.fold_in(jax.random.key(seed), state.step)', 'jax.random.key(seed)')
def test_the_dropout_of_each_step_is_its_own(rich_store):
  """Two steps with the same parameters, on one batch: only the draws differ."""
  config, _, _, run, state = reference_of('bert', rich_store)
  again = setup.make_run(config, rich_store, jax.devices()[:1])  # whose batches begin anew
  batch, losses = again.phases[0].next_batch(0)[0], []
  for step in (state.step, state.step + 1):
    taken = jax.tree.map(jax.numpy.copy, state._replace(step=step))
    losses.append(float(run.phases[0].train(taken, batch)[1]['loss']))
  assert losses[0] != losses[1]


@mutation('nll_BG, right_BG, batch', '0 * nll_BG, right_BG, batch', case='bert')
def test_every_parameter_of_every_layer_receives_a_gradient(reference):
  """In one of the phases at least: some train a part of the model."""
  assert not contract.without_gradient(reference)


@pytest.mark.full
@pytest.mark.parametrize('name', CONFIGS)
def test_every_phase_takes_its_first_step(name, rich_store):
  """On the state that the phases before it left."""
  config = tiny(name)
  run = setup.make_run(config, rich_store, jax.devices()[:1])
  state = first_state.initial_state(run)
  for phase in run.phases:
    phase.compile(run.abstract)
    state, metrics = phase.train(phase.enter(state), phase.next_batch(0)[0])
    assert np.isfinite(metrics['loss']), phase.name


# Those with a state beside their parameters; the full tier has all.
@pytest.mark.parametrize('name', in_tiers(NAMES, {*NAMES} - {'xlnet', 'elmo'}))
def test_save_and_resume_is_bitwise(name, rich_store, tmp_path):
  contract.check_resume(reference_of(name, rich_store), tmp_path)


# The one that is compiled soonest; tests/train have BERT.
@pytest.mark.parametrize('name', in_tiers(NAMES, {*NAMES} - {'gpt'}))
def test_a_run_comes_to_its_end_and_a_second_start_finds_it(
  name, rich_store, tmp_path, monkeypatch, capsys
):
  """Training, checkpoints, evaluations, report and curves, through every phase."""
  devices = jax.devices()[:1]
  monkeypatch.setattr(jax, 'devices', lambda: devices)
  config = whole(name, rich_store)
  train_loop.run(config, str(tmp_path))
  before = (tmp_path / 'metrics.jsonl').read_bytes()
  found = [json.loads(line) for line in before.splitlines()]
  assert [x['step'] for x in found if 'loss' in x] == [2, 4, 6]
  assert all(np.isfinite(list(x.values())).all() for x in found)
  assert config.best.metric in found[-1] and (tmp_path / 'curves.png').exists()
  said = capsys.readouterr().out
  assert re.search('Evaluating: .*held_out', said) and 'The run is in' in said
  train_loop.run(config, str(tmp_path))
  assert 'Resuming after step 6' in capsys.readouterr().out
  assert (tmp_path / 'metrics.jsonl').read_bytes() == before
