"""Every system comes near the least loss that there is on a language where that is known.

The quick form trains one small model for each in some seconds and asks for a part of the gap
between a model that sees nothing and the optimum; study_test.py trains longer, with an arm without
attention, and asks for `Task.shares`. A loss below the optimum has seen its target.
"""

import jax
import pytest
from compiling import optimized
from mutation import mutation

from bertjax.data.text import known_language
from bertjax.studies.known_language import arms
from bertjax.studies.known_language.systems import SYSTEMS, config_of
from bertjax.train import evaluation, first_state, setup

LANGUAGE = known_language.make()
SMALL = {
  'batch_size': 32, 'evals.held_out.examples': 128, 'optimizer.schedule.peak': 4e-3,
  'optimizer.schedule.warmup_steps': 30,
}  # fmt: skip
# So high a peak keeps ERNIE's dialogues where they are.
GENTLE = SMALL | {'batch_size': 64, 'optimizer.schedule.peak': 2e-3}
# Its first rows have no memory, unlike all but the first of training: others are to outweigh them.
LONG = SMALL | {'evals.held_out.examples': 256}
LABELS = ('next', 'order', 'fake')
# System -> steps, the shares of the gap that tokens and labels are to close in them, and the run's.
QUICK = dict(
  bert=(500, 0.6, 0.25, SMALL),
  roberta=(250, 0.5, 0.0, SMALL),
  albert=(400, 0.6, 0.6, SMALL),
  spanbert=(250, 0.5, 0.0, SMALL),
  ernie=(400, 0.5, 0.25, SMALL),
  ernie_dialogues=(1000, 0.5, 0.25, GENTLE),
  electra=(400, 0.4, 0.0, GENTLE),
  electra_generator=(250, 0.3, 0.0, SMALL),
  xlm=(600, 0.5, 0.0, SMALL),
  xlm_e=(700, 0.4, 0.0, GENTLE),
  transformer_xl=(200, 0.7, 0.0, LONG),
  xlnet=(150, 0.65, 0.0, SMALL),
)


def learned(name, store) -> dict[str, arms.Found]:
  """What a system has learned after its quick steps."""
  system = SYSTEMS[name]
  steps, *_, fields = QUICK[name]
  config = config_of(system, str(store), steps=steps)
  config.update_from_flattened_dict(fields)
  run = setup.make_run(config, str(store), jax.devices()[:1])
  with optimized(False):
    state = first_state.initial_state(config, run, lambda line: None)
  for step in range(config.total_steps):
    number, index = run.timeline.at(step)
    phase = run.phases[number]
    if not phase.compiled:
      with optimized(True):
        phase.compile(run.abstract)
    state, _ = phase.train(state, phase.next_batch(index)[0])
  done, named = config.total_steps, run.timeline.side_by_side
  with optimized(False):
    scores, _ = evaluation.run(run.parts, named, state.variables, done, True)
  return {
    loss: arms.Found(optimum, blind, {done: scores[f'eval/{loss}']}, None)
    for loss, (optimum, blind) in arms.least(system, LANGUAGE, run).items()
  }


# Most of the time goes into compiling: the quick tier has two of them.
CI = ('transformer_xl',)


@pytest.mark.parametrize(
  'name', [n if n in CI else pytest.param(n, marks=pytest.mark.full) for n in SYSTEMS]
)
@mutation(
  'known_language, bert: words are not trained',
  'bertjax/objectives/mlm.py',
  'nll_BP), jnp.sum(weight_BP), scale=1.0, plus=plus)',
  'nll_BP), jnp.sum(weight_BP), scale=0.0, plus=plus)',
  case='bert',
)
@mutation(
  'known_language, bert: labels are not trained',
  'bertjax/objectives/mlm.py',
  'jnp.sum(weight_BG), scale=1.0)',
  'jnp.sum(weight_BG), scale=0.0)',
  case='bert',
)
@mutation(
  'known_language, roberta: words are not trained',
  'bertjax/objectives/mlm.py',
  'nll_BP), jnp.sum(weight_BP), scale=1.0, plus=plus)',
  'nll_BP), jnp.sum(weight_BP), scale=0.0, plus=plus)',
  case='roberta',
)
@mutation(
  'known_language, roberta: a slot is asked for the target of another',
  'bertjax/objectives/mlm.py',
  'cross_entropy(scores, target_BP)',
  'cross_entropy(scores, jnp.roll(target_BP, 1, 1))',
  case='roberta',
)
@mutation(
  'known_language, albert: words are not trained',
  'bertjax/objectives/mlm.py',
  'nll_BP), jnp.sum(weight_BP), scale=1.0, plus=plus)',
  'nll_BP), jnp.sum(weight_BP), scale=0.0, plus=plus)',
  case='albert',
)
@mutation(
  'known_language, albert: labels are not trained',
  'bertjax/objectives/mlm.py',
  'jnp.sum(weight_BG), scale=1.0)',
  'jnp.sum(weight_BG), scale=0.0)',
  case='albert',
)
@mutation(
  'known_language, spanbert: spans are not trained',
  'bertjax/objectives/span_boundary.py',
  "terms['mlm']._replace(scale=gradient_scale)",
  "terms['mlm']._replace(scale=0.0)",
  case='spanbert',
)
@mutation(
  'known_language, spanbert: a slot is asked for the target of another',
  'bertjax/objectives/mlm.py',
  'cross_entropy(scores, target_BP)',
  'cross_entropy(scores, jnp.roll(target_BP, 1, 1))',
  case='spanbert',
)
@mutation(
  'known_language, ernie: words are not trained',
  'bertjax/objectives/mlm.py',
  'nll_BP), jnp.sum(weight_BP), scale=1.0, plus=plus)',
  'nll_BP), jnp.sum(weight_BP), scale=0.0, plus=plus)',
  case='ernie',
)
@mutation(
  'known_language, ernie: a slot is asked for the target of another',
  'bertjax/objectives/mlm.py',
  'cross_entropy(scores, target_BP)',
  'cross_entropy(scores, jnp.roll(target_BP, 1, 1))',
  case='ernie',
)
@mutation(
  'known_language, ernie_dialogues: words are not trained',
  'bertjax/objectives/mlm.py',
  'nll_BP), jnp.sum(weight_BP), scale=1.0, plus=plus)',
  'nll_BP), jnp.sum(weight_BP), scale=0.0, plus=plus)',
  case='ernie_dialogues',
)
@mutation(
  'known_language, ernie_dialogues: a slot is asked for the target of another',
  'bertjax/objectives/mlm.py',
  'cross_entropy(scores, target_BP)',
  'cross_entropy(scores, jnp.roll(target_BP, 1, 1))',
  case='ernie_dialogues',
)
@mutation(
  'known_language, electra: the loss does not know who was replaced',
  'bertjax/objectives/rtd.py',
  '- label_BT * logit_BT',
  '- 0.23 * logit_BT',
  case='electra',
)
@mutation(
  'known_language, electra: detection is not trained',
  'bertjax/objectives/rtd.py',
  'count, scale=scale, plus=plus)',
  'count, scale=0.0, plus=plus)',
  case='electra',
)
@mutation(
  'known_language, electra_generator: the generator is not trained',
  'bertjax/objectives/rtd.py',
  "terms | dict(mlm=terms['mlm']._replace(scale=generator_scale))",
  "terms | dict(mlm=terms['mlm']._replace(scale=0.0))",
  case='electra_generator',
)
@mutation(
  'known_language, electra_generator: a slot is asked for the target of another',
  'bertjax/objectives/mlm.py',
  'cross_entropy(scores, target_BP)',
  'cross_entropy(scores, jnp.roll(target_BP, 1, 1))',
  case='electra_generator',
)
@mutation(
  'known_language, xlm: words are not trained',
  'bertjax/objectives/mlm.py',
  'nll_BP), jnp.sum(weight_BP), scale=1.0, plus=plus)',
  'nll_BP), jnp.sum(weight_BP), scale=0.0, plus=plus)',
  case='xlm',
)
@mutation(
  'known_language, xlm: a slot is asked for the target of another',
  'bertjax/objectives/mlm.py',
  'cross_entropy(scores, target_BP)',
  'cross_entropy(scores, jnp.roll(target_BP, 1, 1))',
  case='xlm',
)
@mutation(
  'known_language, xlm_e: detection is not trained',
  'bertjax/objectives/rtd.py',
  'count, scale=scale, plus=plus)',
  'count, scale=0.0, plus=plus)',
  case='xlm_e',
)
@mutation(
  'known_language, xlm_e: the loss does not know who was replaced',
  'bertjax/objectives/rtd.py',
  '- label_BT * logit_BT',
  '- 0.23 * logit_BT',
  case='xlm_e',
)
@mutation(
  'known_language, transformer_xl: slots are not trained',
  'bertjax/objectives/lm.py',
  'nll_BP), weight, scale=1.0)',
  'nll_BP), weight, scale=0.0)',
  case='transformer_xl',
)
@mutation(
  'known_language, transformer_xl: a slot is asked for the target of another',
  'bertjax/objectives/lm.py',
  "score(out['word'], batch['target_BP'])",
  "score(out['word'], jnp.roll(batch['target_BP'], 1, 1))",
  case='transformer_xl',
)
@mutation(
  'known_language, xlnet: slots are not trained',
  'bertjax/objectives/lm.py',
  'nll_BP), weight, scale=1.0)',
  'nll_BP), weight, scale=0.0)',
  case='xlnet',
)
@mutation(
  'known_language, xlnet: a slot is asked for the target of another',
  'bertjax/objectives/lm.py',
  "score(out['word'], batch['target_BP'])",
  "score(out['word'], jnp.roll(batch['target_BP'], 1, 1))",
  case='xlnet',
)
def test_a_system_comes_near_the_optimum(name, store_of):
  found = learned(name, store_of(SYSTEMS[name].text))
  _, tokens, labels, _ = QUICK[name]
  for loss, f in found.items():
    print(f'{name} {loss}: {f.optimum:.3f} {f.reached:.3f} {f.blind:.3f}, closed {f.closed:.1%}')
  for loss, f in found.items():
    assert f.closed >= (labels if loss in LABELS else tokens), (loss, f)
    assert f.reached > f.optimum - 0.03, (loss, f)
