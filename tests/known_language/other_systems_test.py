"""Systems come near the least loss that there is on a language where that is known: those of
detection, streams and two languages.

The quick form trains one small model for each in some seconds and asks for a part of the gap
between a model that sees nothing and the optimum; study_test.py trains longer, with an arm without
attention, and asks for `Task.shares`. The rest of the systems are in masked_words_test.py: two
files, so that two workers share them.
"""

import pytest
from mutation import mutation
from quick_learning import Quick, check
from tiers import in_tiers

GENTLE = {'optimizer.schedule.peak': 2e-3}
# Its first rows have no memory, unlike all but the first of training: others are to outweigh them.
LONG = {'evals.held_out.examples': 256}
QUICK = dict(
  electra=Quick(400, 0.4, fields=GENTLE),
  electra_generator=Quick(250, 0.3),
  xlm=Quick(600, 0.5),
  xlm_e=Quick(700, 0.4, fields=GENTLE),
  transformer_xl=Quick(200, 0.7, fields=LONG),
  xlnet=Quick(150, 0.65),
)
SLOW = ('electra', 'electra_generator', 'xlm', 'xlm_e', 'xlnet')


@pytest.mark.parametrize('name', in_tiers(QUICK, SLOW))
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
  check(name, QUICK[name], store_of)
