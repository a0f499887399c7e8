"""What every config must keep, walked over all of configs/: a new config is a new row by itself."""

import functools
import json
import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict
from mutation import mutation
from systems import NAMES, tiny

from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.train import first_state, setup
from bertjax.train import loop as train_loop
from bertjax.train import step as step_lib
from bertjax.train.phase import Phase
from bertjax.types import Context

STEPS = 3
# Of systems that have a row of their own, or whose masks alone are theirs: in the full tier.
VARIANTS = (
  'bert_lamb', 'electra_two_stage', 'ernie', 'mbert', 'quickstart', 'roberta', 'xlm_e', 'xlm_r',
)  # fmt: skip
CONFIGS = [pytest.param(name, marks=pytest.mark.full if name in VARIANTS else ()) for name in NAMES]


class Reference(NamedTuple):
  """A config's first steps on one device."""

  name: str
  losses: np.ndarray
  run: setup.Run
  state: step_lib.State


def steps_of(config: ConfigDict, rich_store, devices: int, steps: int = STEPS) -> Reference:
  """The first steps from the seed, on so many devices."""
  run = setup.make_run(config, rich_store, jax.devices()[:devices])
  state, phase = first_state.initial_state(config, run), run.phases[0]
  phase.compile(run.abstract)
  found = []
  for index in range(steps):  # the compiled step refuses a state that came back otherwise
    state, metrics = phase.train(state, phase.next_batch(index)[0])
    found.append(float(metrics['loss']))
  return Reference(config.name, np.array(found), run, state)


def whole(name: str, rich_store, **fields) -> ConfigDict:
  """A run of six steps with checkpoints and evaluations.

  The checks of a config take their steps from it, so that its step is compiled once for all.
  """
  few = dict(total_steps=6, log_steps=2, eval_steps=4, checkpoint_steps=4)
  rows = {'evals.held_out.examples': 8, 'evals.pseudo_perplexity.rows': 1}
  if 'pseudo_perplexity' not in setup.make_run(tiny(name), rich_store).phases[0].objective.evals:
    rows['evals.pseudo_perplexity.rows'] = 0
  return tiny(name, **few, **rows, **{'data.store': str(rich_store)}, **fields)


def losses(config: ConfigDict, rich_store, devices: int = 1, steps: int = STEPS) -> np.ndarray:
  """Those of `steps_of`."""
  return steps_of(config, rich_store, devices, steps).losses


@functools.cache
def reference_of(name: str, rich_store) -> Reference:
  """One compile serves the checks of a config."""
  return steps_of(whole(name, rich_store), rich_store, 1)._replace(name=name)


@pytest.fixture(params=CONFIGS)
def reference(request, rich_store):
  return reference_of(request.param, rich_store)


def test_the_loss_is_finite_and_moves(reference):
  assert np.isfinite(reference.losses).all() and len(set(reference.losses)) == STEPS


MIXED = {'mesh.data': 2, 'mesh.fsdp': 2, 'mesh.tensor': 2}
REPLICAS = {'mesh.data': 2, 'mesh.fsdp': 2}  # which XLA divides further, see sharding.replicas


def agree(reference: Reference, rich_store, fields: dict):
  """Other meshes and microbatches come to the same losses."""
  devices = math.prod(size for key, size in fields.items() if key.startswith('mesh.'))
  np.testing.assert_allclose(
    losses(whole(reference.name, rich_store, **fields), rich_store, devices=devices),
    reference.losses, rtol=2e-6,
  )  # fmt: skip


# One of each kind of model; the full tier has all configs and the other kinds of collectives.
@pytest.mark.parametrize('name', ['bert', 'electra', 'transformer_xl', 'xlnet'])
def test_replicas_and_microbatches_change_nothing(name, rich_store):
  agree(reference_of(name, rich_store), rich_store, REPLICAS | {'microbatches': 2})


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
def test_meshes_and_microbatches_change_nothing(reference, rich_store, fields):
  agree(reference, rich_store, fields)


@pytest.mark.full
@pytest.mark.parametrize(
  'fields', [{'model.groups': 2, 'model.inner_groups': 2}, {'model.sharing': 'attention'}], ids=str
)
def test_meshes_agree_on_other_ways_of_sharing(rich_store, fields):
  one = losses(tiny('albert', **fields), rich_store)
  many = losses(tiny('albert', **fields, **MIXED), rich_store, devices=8)
  np.testing.assert_allclose(many, one, rtol=2e-6)


@pytest.mark.parametrize(
  'name',
  ['bert', *(pytest.param(n, marks=pytest.mark.full) for n in ('modernbert', 'electra', 'xlm'))],
)
@mutation(
  'setup: columns are not divided',
  'configs/common.py',
  "  ('length', 'sequence'),\n",
  "  ('length', 'nothing'),\n",
)
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


@mutation(
  'step: the same key at every step',
  'bertjax/train/step.py',
  'jax.random.fold_in(jax.random.key(seed), state.step)',
  'jax.random.key(seed)',
)
def test_the_dropout_of_each_step_is_its_own(rich_store):
  """Two steps that change nothing, on one batch: only the draws differ."""
  config = tiny('roberta')
  config.optimizer.schedule.peak = 0.0
  run = setup.make_run(config, rich_store, jax.devices()[:1])
  state, phase = first_state.initial_state(config, run), run.phases[0]
  phase.compile(run.abstract)
  batch = phase.next_batch(0)[0]
  state, first = phase.train(state, batch)
  state, second = phase.train(state, batch)
  assert float(first['loss']) != float(second['loss'])


def zeros_of(phase: Phase, tree) -> set[str]:
  """The parameters, layer by layer, that are all zero in a tree like them."""
  batch = step_lib.with_rows(phase.template)
  stacked = jax.tree.map(
    lambda box: box.names[0] == 'layers',
    jax.eval_shape(phase.objective.init, jax.random.key(0), batch)['params'],
    is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned),
  )
  return {
    f'{jax.tree_util.keystr(path)}, layer {layer}'
    for (path, leaf), is_stack in zip(
      jax.tree_util.tree_leaves_with_path(tree), jax.tree.leaves(stacked), strict=True
    )
    for layer, part in enumerate(leaf if is_stack else leaf[None])
    if not np.abs(part).max() > 0
  }


def gradient(phase: Phase, state) -> dict:
  """Of a phase's first batch, like the parameters."""
  batch, carry = step_lib.with_rows(phase.next_batch(0)[0]), state.carry[phase.name]
  ctx = Context(jax.random.key(0), jnp.int32(0), True)
  loss = lambda v: step_lib.accumulate(phase.objective, v, carry, batch, ctx, 1)[0]
  return jax.jit(loss)(state.variables)


@mutation(
  'contract: no gradient for what tells pairs apart',
  'bertjax/objectives/mlm.py',
  'jnp.sum(weight_BG), scale=1.0)',
  'jnp.sum(weight_BG), scale=0.0)',
  case='bert',
)
def test_every_parameter_of_every_layer_receives_a_gradient(reference):
  """In one of the phases at least: some train a part of the model."""
  first, *others = reference.run.phases
  # The mean of the first steps' gradients, which the optimizer keeps.
  missing = zeros_of(first, optax.tree.get(reference.state.opt_state, 'mu'))
  for phase in others:
    missing = missing and missing & zeros_of(phase, gradient(phase, reference.state))
  assert not missing


@pytest.mark.full
@pytest.mark.parametrize('name', CONFIGS)
def test_every_phase_takes_its_first_step(name, rich_store):
  """On the state that the phases before it left."""
  config = tiny(name)
  run = setup.make_run(config, rich_store, jax.devices()[:1])
  state = first_state.initial_state(config, run)
  for phase in run.phases:
    phase.compile(run.abstract)
    state, metrics = phase.train(phase.enter(state), phase.next_batch(0)[0])
    assert np.isfinite(metrics['loss']), phase.name


def test_save_and_resume_is_bitwise(reference, rich_store, tmp_path):
  run, phase = reference.run, reference.run.phases[0]
  config = whole(reference.name, rich_store)
  state = jax.tree.map(jnp.copy, reference.state)  # the step takes it
  kept = checkpoints_lib.Checkpoints(tmp_path, 1, config.best)
  kept.save(STEPS, state, dict(fed_sha256=first_state.last_batch_sha256(run, STEPS)), wait=True)
  straight, _ = phase.train(state, phase.next_batch(STEPS)[0])
  done, restored, meta = kept.restore(run.abstract)
  kept.close()
  first_state.check_last_batch(run, meta, done)
  again = setup.make_run(config, rich_store, jax.devices()[:1]).phases[0].next_batch(STEPS)[0]
  resumed, _ = phase.train(restored, again)
  jax.tree.map(np.testing.assert_array_equal, resumed, straight)


@pytest.mark.parametrize('name', CONFIGS)
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
  assert 'The run is in' in capsys.readouterr().out
  train_loop.run(config, str(tmp_path))
  assert 'Resuming after step 6' in capsys.readouterr().out
  assert (tmp_path / 'metrics.jsonl').read_bytes() == before
