"""Every config file: its sizes, what it refuses, what follows from its references."""

import copy
import importlib
import sys

import pytest
from absl import flags
from mutation import mutation
from systems import NAMES as CONFIGS

from bertjax import dotted
from bertjax.config import command_line, schema, sections
from bertjax.config import timeline as timeline_lib


@pytest.mark.parametrize('name', CONFIGS)
def test_a_config_says_how_to_run_it_and_its_phases_take_all_steps(name):
  module = importlib.import_module(f'configs.{name}')
  assert f'python -m bertjax.main --config=configs/{name}.py' in module.__doc__
  config = module.get_config()
  timeline = timeline_lib.make(config)
  assert timeline.interleaved or sum(timeline.lengths) == config.total_steps


@mutation('share=500_000.0, model=off', 'share=500_000.0')
def test_albert_switches_dropout_off_by_phase_or_by_version():
  get_config = importlib.import_module('configs.albert').get_config
  rates = lambda c: (c.model.dropout, c.model.attention_dropout)
  timeline = timeline_lib.make(get_config('xxlarge_v1'))
  assert timeline.lengths == (1_000_000, 500_000)
  assert [rates(p.config) for p in timeline.phases] == [(0.1, 0.1), (0.0, 0.0)]
  second = get_config('base_v2')
  assert rates(second) == (0.0, 0.0) and second.total_steps == 10_000_000
  for c in (get_config('large'), second):
    assert c.optimizer.schedule.warmup_steps == 3125
  second.total_steps = 3_200_000
  assert second.optimizer.schedule.warmup_steps == 1000


LAMB = {'phases.phase1.length': 128, 'length': 512, 'model.init_std': 0.02}
# What a recipe has from its original, or its command.
FACTS = {
  'bert:base': {
    'phases.phase1.share': 0.9, 'phases.phase1.length': 128, 'phases.phase2.share': 0.1,
    'length': 512,
  },
  'bert_lamb:tiny': LAMB,
  'bert_lamb:large': LAMB | {
    'model.activation': 'gelu_erf', 'model.initializer': 'normal', 'data.plan.dupe_factor': 5,
    'objective.plus': 0.0,
  },
  'xlm:en': {'optimizer.schedule.warmup_steps': 30_000},
  **{f'xlm:xlm{n}': {'optimizer.schedule.warmup_steps': 4000} for n in (15, 17, 100)},
  # TensorFlow's Adam adds eps to the raw root, torch's after the correction.
  'transformer_xl:wt103_base': {'optimizer.eps_first': None, 'optimizer.bias_correction': True},
  'transformer_xl:wt103_large': {'optimizer.eps_first': True, 'optimizer.bias_correction': True},
  'ernie:base': {  # 8 devices of 8192 tokens
    'model.labels': (('next', 2),), 'data.plan.name': 'ernie_pairs', 'batch_size': 128,
    'length': 512, 'optimizer.schedule.warmup_steps': 4000,
  },
  'ernie:base_dialogues': {
    'model.extra': (('role', 2),), 'model.types': 0, 'batch_size': 64, 'length': 128,
  },
}  # fmt: skip


@pytest.mark.parametrize('recipe', FACTS)
@mutation("c.get_ref('length') // 4", "c.get_ref('length') // 2", file='configs/bert_lamb.py')
@mutation("activation='gelu_erf'", "activation='gelu_tanh'", file='configs/bert_lamb.py')
@mutation("(command, 30_000) if size in ('en', 'en_clm') else", '(command, 30_000) if size else')
@mutation('eps_first=True', 'eps_first=False', file='configs/transformer_xl.py')
@mutation('batch_size=128)', 'batch_size=16)', file='configs/ernie.py')
def test_a_recipe_has_the_numbers_of_its_original(recipe):
  name, size = recipe.split(':')
  config = importlib.import_module(f'configs.{name}').get_config(size)
  found = dotted.flat(config.copy_and_resolve_references().to_dict())
  assert {key: found.get(key) for key in FACTS[recipe]} == FACTS[recipe]


def parse(monkeypatch, *arguments, file='configs/bert.py:small'):
  """The config that `bertjax.main` would see; config_flags reads the process's own arguments."""
  argv = ['main', f'--config={file}', *arguments]
  monkeypatch.setattr(sys, 'argv', argv)
  values = flags.FlagValues()
  command_line.define_config(values=values)
  values(argv)
  return values['config'].value


@pytest.mark.parametrize(
  'name',
  'albert bert electra electra_two_stage ernie mbert roberta spanbert xlm xlm_e xlm_r'.split(),
)
def test_tiny_has_a_laptops_recipe_and_the_systems_rules(name):
  module = importlib.import_module(f'configs.{name}')
  tiny, published = module.get_config('tiny'), module.get_config(None)
  assert (tiny.total_steps, tiny.batch_size, tiny.length) == (2500, 32, 64)
  assert tiny.optimizer.schedule.warmup_steps == 200 and tiny.model.init_std == 0.08
  tiny.total_steps = 50
  assert tiny.optimizer.schedule.warmup_steps == 4
  for key in ('plan', 'mask'):
    assert tiny.data[key].name == published.data[key].name
  for key in ('split', 'pack'):
    assert tiny.data[key] == published.data[key]
  assert tiny.objective.name == published.objective.name


@mutation("return follow('eval_steps')", "return follow.__self__.get_ref('eval_steps')")
def test_a_set_may_be_judged_at_the_end_alone(monkeypatch):
  config = parse(monkeypatch, '--config.evals.held_out.every=0', '--config.eval_steps=7')
  assert config.eval_steps == 7 and config.evals.held_out.every == 0
  assert schema.check(config).phases[0].config.evals.held_out.every == 0


@mutation("microbatches=c.get_oneway_ref('microbatches')", "microbatches=c.get_ref('microbatches')")
def test_a_command_gives_a_phase_of_modernbert_its_own_microbatches(monkeypatch):
  given = ('--config.microbatches=2', '--config.phases.batch1.microbatches=4')
  phases = timeline_lib.make(parse(monkeypatch, *given, file='configs/modernbert.py:test')).phases
  assert [phase.config.microbatches for phase in phases] == [4, 2]


@mutation("optimizer.schedule.get_ref('peak') * stage.peak", 'optimizer.schedule.peak * stage.peak')
@mutation("  peak = c.optimizer.schedule.get_ref('peak')\n", '  peak = c.optimizer.schedule.peak\n')
def test_rates_and_decays_of_modernbert_follow_its_peak(monkeypatch):
  """Extensions of the context run at 3/8 of the peak; each takes 1e-5 off a weight at its peak."""
  given = '--config.optimizer.schedule.peak=1e-4'
  line = timeline_lib.make(parse(monkeypatch, given, file='configs/modernbert.py:base'))
  found = {phase.name: phase.config.optimizer for phase in line.phases}
  for name, peak in (('batch1', 1e-4), ('context1', 3.75e-5), ('context2', 3.75e-5)):
    assert found[name].schedule.peak == pytest.approx(peak)
    assert found[name].weight_decay * peak == pytest.approx(1e-5)


def values(config) -> dict:
  return dotted.flat(config.copy_and_resolve_references().to_dict())


def moved(config, was: dict, key: str) -> set[str]:
  """What has another value than it `was` where this key has, of a copy."""
  changed = copy.deepcopy(config)
  changed.update_from_flattened_dict({key: 3 * was[key] + 7})
  return {name for name, value in values(changed).items() if value != was[name]}


@pytest.mark.parametrize('name', CONFIGS)
@mutation('THE_RUN, total_steps=c.get_oneway_ref', 'THE_RUN, total_steps=c.get_ref', case='bert')
@mutation("c.get_oneway_ref('batch_size')", "c.get_ref('batch_size')", case='xlm')
@mutation(
  'decay_steps=share_of(c, stage.steps, steps)',
  "decay_steps=schedule['total_steps']",
  case='modernbert',
)
def test_what_follows_from_a_key_does_not_move_it_or_another(name):
  """But XLNet's reuse_len, one number that has three names."""
  config = importlib.import_module(f'configs.{name}').get_config()
  sections.complete(config)
  sources = ('total_steps', 'eval_steps', 'batch_size', 'length')
  was = values(config)
  following = set.union(*(moved(config, was, source) - {source} for source in sources))
  assert {'optimizer.schedule.total_steps', 'evals.held_out.every'} & following
  for key in following:
    assert key.endswith('.reuse_len') or moved(config, was, key) == {key}
