"""What is compiled of a config whose steps sum the losses of several phases."""

import importlib

import pytest
from mutation import mutation
from systems import NAMES, tiny

from bertjax.config import presets, sections, timeline
from bertjax.tools.bench.parts import own_step
from bertjax.tools.preflight import checking, estimate, proposal
from configs import modernbert

ONE = dict(data=1, fsdp=1, tensor=1, sequence=1)


@mutation("known['optimizer'].pop('schedule')", "known['optimizer'].get('schedule')")
def test_phases_that_differ_in_their_rate_alone_are_compiled_once():
  config = modernbert.get_config('base')
  config.preset = 'tpu'
  found = checking.phases(config, None, None)
  whole = timeline.make(config)
  assert len(found) < len(whole.phases)
  assert sum(phase.steps or 0 for phase in found) == pytest.approx(
    whole.total, abs=len(whole.phases)
  )


@mutation("('plan', 'mask')]", "('plan',)]")
def test_phases_that_hide_more_are_compiled_and_counted_by_themselves():
  rates = {f'p{i}': dict(share=1.0, data=dict(mask=dict(rate=r))) for i, r in enumerate((0.4, 0.1))}
  found = checking.phases(tiny('roberta', phases=rates), None, None)
  more, less = (checking.batch_of(phase.config)['target_BP'].shape[1] for phase in found)
  assert more > less and {phase.steps for phase in found} == {found[0].steps}


@mutation('sizes, where.hosts)', 'sizes, 1)')
def test_a_batch_that_the_hosts_do_not_divide_is_refused():
  """The chips divide it: each group of eight has the same rows."""
  config = tiny('bert', batch_size=8, **{'mesh.data': 8, 'mesh.tensor': 8})
  (phase,) = checking.phases(config, 8, 16)
  with pytest.raises(ValueError, match='batch_size=8 must be a multiple of .* and of 16 hosts'):
    checking.check(phase, 'v5e:8x8', compiles=False)


@pytest.mark.full
@pytest.mark.parametrize('impl', ['gpu', 'tpu'])
@pytest.mark.parametrize('name', NAMES)
@mutation(
  'SIZE = 128',
  'SIZE = 32',
  file='bertjax/kernels/relative_attention/gpu/forward.py',
  case='bert-gpu',
)
def test_the_kernels_take_the_attention_of_every_recipe(name, impl):
  """By its name an implementation refuses what it does not take, in place of another's help."""
  config = importlib.import_module(f'configs.{name}').get_config()
  config.preset = impl
  sections.complete(config)
  presets.apply(config, {}, {})
  phase = checking.phases(config, None, None)[-1]
  phase.config.update(batch_size=8, microbatches=1)
  checking.check(phase, dict(gpu='h100:1', tpu='v5e:1x1')[impl], impl, compiles=False)


@pytest.fixture
def phase() -> checking.Phase:
  """XLM-E's step on text and pairs at once, a row of each."""
  (phase,) = checking.phases(tiny('xlm_e', batch_size=1), None, None)
  return phase


@pytest.mark.full
@mutation('if whole and not whole.draws:', 'if False:')
def test_losses_that_are_summed_are_one_step(phase):
  """It holds what both keep, over parameters that they share, and costs what both cost."""
  assert (phase.name, phase.steps) == ('mrtd+trtd', 100)
  each = own_step.phases_of(phase.config).values()
  batches = [checking.batch_of(config) for config in each]
  together = checking.batch_of(phase.config)
  of_each = [estimate.of(*pair, ONE) for pair in zip(each, batches, strict=True)]
  found = estimate.of(phase.config, together, ONE)
  assert found['parameters'] == of_each[0]['parameters'] == of_each[1]['parameters']
  for kind in ('batch', 'residuals'):
    assert found[kind] == sum(one[kind] for one in of_each) > 0
  costs = [own_step.flops(*pair) for pair in zip(each, batches, strict=True)]
  assert own_step.flops(phase.config, together) == sum(costs)


@mutation('most = max([0, *(', 'most = sum([0, *(')
def test_of_losses_that_are_summed_all_logits_are_held_and_exponentials_of_one():
  sums = {name: dict(summed=1.0) for name in 'ab'}
  (phase,) = checking.phases(tiny('roberta', batch_size=1, phases=sums), None, None)
  configs = (phase.config, *own_step.phases_of(phase.config).values())
  traced = []
  for config in configs:
    batch = checking.batch_of(config)
    traced.append(estimate.trace(config, own_step.system(config, batch), batch, rows=1))
  together, *each = traced
  assert together.logits == sum(one.logits for one in each)
  assert together.exps == each[0].exps == each[1].exps > 0
  assert together.turn == max(one.turn for one in each)


@pytest.mark.full
@mutation('for each in (changed, *own_step.phases_of(changed).values())', 'for each in (changed,)')
def test_all_phases_of_a_step_keep_less_where_less_is_proposed(phase):
  batch = checking.batch_of(phase.config)
  found = estimate.of(phase.config, batch, ONE)
  # One row on one device: nothing else can be divided.
  limit = sum(found.values()) - found['residuals'] // 3
  proposed = proposal.search(phase.config, batch, ONE, int(limit / proposal.FULL))
  assert proposed is not None and proposed.remat not in (None, 'none')
