"""Systems come near the least loss that there is on a language where that is known.

The quick form trains one small model for each in some seconds and asks for a part of the gap
between a model that sees nothing and the optimum; study_test.py trains longer, with an arm without
attention, and asks for `Task.shares`.
"""

import pytest
from mutation import mutation
from quick_learning import Quick, check
from tiers import in_tiers

# So high a peak keeps ERNIE's dialogues where they are.
GENTLE = {'optimizer.schedule.peak': 2e-3}
# Its first rows have no memory, unlike all but the first of training: others are to outweigh them.
LONG = {'evals.held_out.examples': 256}
QUICK = dict(
  bert=Quick(500, 0.6, 0.25),
  roberta=Quick(250, 0.5),
  albert=Quick(400, 0.6, 0.6),
  spanbert=Quick(250, 0.5),
  ernie=Quick(400, 0.5, 0.25),
  ernie_dialogues=Quick(800, 0.5, 0.25, GENTLE),
  electra=Quick(400, 0.4, fields=GENTLE),
  electra_generator=Quick(250, 0.3),
  xlm=Quick(600, 0.5),
  xlm_e=Quick(700, 0.4, fields=GENTLE),
  transformer_xl=Quick(200, 0.7, fields=LONG),
  xlnet=Quick(150, 0.65),
)


@pytest.mark.parametrize('name', in_tiers(QUICK, set(QUICK) - {'bert', 'transformer_xl'}))
@mutation(
  'known_language: words are not trained',
  'bertjax/objectives/mlm.py',
  'nll_BP), jnp.sum(weight_BP), scale=1.0, plus=plus)',
  'nll_BP), jnp.sum(weight_BP), scale=0.0, plus=plus)',
  case='bert',
)
@mutation(
  'known_language: labels are not trained',
  'bertjax/objectives/mlm.py',
  'jnp.sum(weight_BG), scale=1.0)',
  'jnp.sum(weight_BG), scale=0.0)',
  case='bert',
)
@mutation(
  'known_language: a slot is asked for the target of another',
  'bertjax/objectives/mlm.py',
  'cross_entropy(scores, target_BP)',
  'cross_entropy(scores, jnp.roll(target_BP, 1, 1))',
  case='xlm',
)
@mutation(
  'known_language: spans are not trained',
  'bertjax/objectives/span_boundary.py',
  "terms['mlm']._replace(scale=gradient_scale)",
  "terms['mlm']._replace(scale=0.0)",
  case='spanbert',
)
@mutation(
  'known_language: the loss does not know who was replaced',
  'bertjax/objectives/rtd.py',
  '- label_BT * logit_BT',
  '- 0.23 * logit_BT',
  case='electra',
)
@mutation(
  'known_language: detection is not trained',
  'bertjax/objectives/rtd.py',
  'count, scale=scale, plus=plus)',
  'count, scale=0.0, plus=plus)',
  case='xlm_e',
)
@mutation(
  'known_language: the generator is not trained',
  'bertjax/objectives/rtd.py',
  "terms | dict(mlm=terms['mlm']._replace(scale=generator_scale))",
  "terms | dict(mlm=terms['mlm']._replace(scale=0.0))",
  case='electra_generator',
)
@mutation(
  'known_language: slots of a stream are not trained',
  'bertjax/objectives/lm.py',
  'nll_BP), weight, scale=1.0)',
  'nll_BP), weight, scale=0.0)',
  case='transformer_xl',
)
@mutation(
  'known_language: a slot of a stream is asked for the target of another',
  'bertjax/objectives/lm.py',
  "score(out['word'], batch['target_BP'])",
  "score(out['word'], jnp.roll(batch['target_BP'], 1, 1))",
  case='xlnet',
)
def test_a_system_comes_near_the_optimum(name, store_of):
  check(name, QUICK[name], store_of)
