"""Every objective with every noise: it learns from what the noise asks for, or is refused."""

import copy
import importlib

import cases
import every_plan
import jax
import pytest
from ml_collections import ConfigDict
from mutation import mutation
from systems import tiny

from bertjax import registry
from bertjax.config import schema, sections
from bertjax.errors import UserError
from bertjax.objectives import classify
from bertjax.train import setup
from bertjax.train import step as step_lib
from bertjax.types import Context

NOISES = set(registry.names_in('bertjax.examples.noise'))
OF_WORDS = {
  'albert_ngrams', 'bert', 'deberta_windows', 'diffusion', 'distilbert', 'electra', 'ernie',
  'spanbert', 'xlm',
}  # fmt: skip
WRITTEN = {name for name in NOISES if name.startswith('t5_')}
# Objective -> its config, what changes there, and the noises that it learns from.
OWN = {
  'bilm': ('elmo', {}, {'bilm'}),
  'lm': ('gpt', {}, {'causal'}),
  'mlm': ('bert', {}, OF_WORDS),
  'mlm, causal': ('bert', {'model.attend': 'causal'}, {'causal'}),
  'plm': ('xlnet', {}, {'xlnet_permutation'}),
  'rtd': ('electra', {}, OF_WORDS),
  'seq2seq': ('t5', {}, WRITTEN),
  'seq2seq, framed': ('bart', {}, {'bart_infilling', 'mass_runs'}),
  'span_boundary': ('spanbert', {}, {'spanbert'}),
}
TAUGHT = {
  'distill': ('distilbert', {}, OF_WORDS),
  'layerwise': ('tinybert', {}, NOISES),
  'relations': ('minilm', {}, NOISES),
}
TAGS = {'model.labels': (), 'model.token_labels': (('tag', 3),)}
OF_TASKS = {
  'choose': ('text', {'model.labels': (('right', 1),)}, NOISES),
  'classify': ('text', {'model.labels': (('label', 2),)}, NOISES),
  'probe': ('text', TAGS, set()),
  'soft_labels': ('text', {'model.labels': (('label', 2),)}, NOISES),
  'spans': ('text', {'model.labels': (), 'model.token_labels': (('span', 2),)}, set()),
  'tag': ('text', TAGS, set()),
}
ROWS = OWN | TAUGHT | OF_TASKS
FITTING = [(name, noise) for name, (*_, noises) in ROWS.items() for noise in sorted(noises)]
# With their own noise the quick tier has these in contract_test, span_boundary_test and
# objectives/bilm_test.
ELSEWHERE = {'bilm', 'lm', 'plm', 'span_boundary'}
QUICK = {name: noise for name, noise in reversed(FITTING) if name not in ELSEWHERE}.items()
NOISE_OF = dict(bart_infilling='bart', bilm='elmo', mass_runs='mass', t5_spans='t5')
MASKS = {mask['name']: mask for mask in reversed(every_plan.MASKS.values())} | {
  't5_deshuffle': dict(name='t5_deshuffle', static=False),
  't5_prefix': dict(name='t5_prefix', static=False),
  't5_tokens': dict(name='t5_tokens', rate=0.15, form='sentinels', static=False),
}
PLANS = dict(bilm='elmo', xlnet_permutation='xlnet')


def config_of(objective, noise, store):
  """Returns a tiny config of an objective whose rows are by a noise, with a plan that suits it."""
  name = objective.partition(',')[0]
  system, changes, _ = ROWS[objective]
  c = tiny(system if objective in OWN else 'bert', **{'data.store': str(store)})
  c.phases, c.evals = ConfigDict(), ConfigDict()
  if objective not in OWN:
    folder = 'distill' if objective in TAUGHT else 'finetune'
    own = importlib.import_module(f'configs.{folder}.{system}').get_config()
    c.model.update(words=name == 'distill', labels=())
    c.objective = own.objective if objective in TAUGHT else ConfigDict(dict(name=name))
  if name == 'soft_labels':
    c.objective.update(dict(hard=1.0, soft=1.0, temperature=1.0, kl='sum'))
  c.data.mask = ConfigDict(tiny(NOISE_OF[noise]).data.mask if noise in NOISE_OF else MASKS[noise])
  if noise in PLANS:
    c.data.plan = tiny(PLANS[noise]).data.plan
    c.model.update(dict(labels=()) if 'labels' in c.model and name not in OF_TASKS else {})
  if noise == 'xlnet_permutation':
    c.data.plan.reuse_len, c.data.mask.perm_size = every_plan.REUSE, 8
  sections.complete(c)
  c.update_from_flattened_dict(changes)
  if objective in TAUGHT:
    c.model.vocab_size = cases.VOCAB
    c.objective.teacher.source = 'runs/teacher'
    with c.objective.teacher.unlocked():
      c.objective.teacher.model = copy.deepcopy(c.model)
  return c


def traced(config, store):
  """Traces a step of the loss on the rows of a run, without compiling it."""
  phase = setup.make_run(config, str(store), jax.devices()[:1]).parts[0]
  batch, objective = step_lib.with_rows(phase.next_batch(0)[0]), phase.objective
  ctx = Context(jax.random.key(0), jax.numpy.int32(0), True)
  loss = lambda v: objective.loss(v, objective.carry(batch), batch, ctx).terms
  return jax.eval_shape(loss, phase.subject.variables)


def test_every_objective_and_every_noise_is_walked():
  assert {name.partition(',')[0] for name in ROWS} == {*registry.names_in('bertjax.objectives')}
  assert NOISES == {*MASKS, *NOISE_OF}


@pytest.mark.parametrize('objective', ROWS)
@mutation(
  "lambda config: ('next',)", 'lambda config: ()', file='bertjax/objectives/lm.py', case='lm'
)
@mutation(
  '(config.model).causal else',
  '(config.model).causal or True else',
  file='bertjax/objectives/mlm.py',
  case='mlm',
)
@mutation("targets=('next',)", "targets=('hidden',)", file='bertjax/examples/noise/causal.py')
@mutation(
  "('framed',) if",
  "('framed', 'written') if",
  file='bertjax/objectives/seq2seq.py',
  case='seq2seq, framed',
)
@mutation("return ('next',) if", "return ('hidden', 'next') if", case='mlm, causal')
@mutation('  fit.check(config)\n', '', file='bertjax/config/schema.py', case='rtd')
def test_a_noise_that_does_not_fit_is_refused_before_any_work(objective, rich_store):
  said = f"config.objective.name='{objective.partition(',')[0]}' learns from "
  for noise in sorted(NOISES - ROWS[objective][2]):
    with pytest.raises(UserError, match=f"{said}.*'{noise}' gives .*: expected .* there, or"):
      schema.check(config_of(objective, noise, rich_store))


@mutation('  if not targets:\n', '  if False:\n')
def test_an_objective_that_does_not_tell_its_targets_is_named(rich_store, monkeypatch, caplog):
  monkeypatch.setattr(classify, 'OBJECTIVE', classify.OBJECTIVE._replace(targets=None))
  for _ in range(2):
    schema.check(config_of('classify', 'bert', rich_store))
  assert caplog.text.count("'classify' does not say what targets it learns from") == 1


@pytest.mark.parametrize(
  'objective, noise',
  [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.full) for pair in FITTING],
)
def test_a_noise_that_fits_is_learned(objective, noise, rich_store):
  """Or its rows have no such label, which the plan or the files give."""
  config = config_of(objective, noise, rich_store)
  schema.check(config)
  if objective not in OF_TASKS:
    assert traced(config, rich_store)
    return
  with pytest.raises(UserError, match='or take one that does|what a teacher says'):
    traced(config, rich_store)
