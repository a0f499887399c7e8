"""Systems come near the least loss that there is on a language where that is known: those of
masked words in one language.

The quick form trains one small model for each in some seconds and asks for a part of the gap
between a model that sees nothing and the optimum; study_test.py trains longer, with an arm without
attention, and asks for `Task.shares`. The rest of the systems are in other_systems_test.py: two
files, so that two workers share them.
"""

import pytest
from mutation import mutation
from quick_learning import Quick, check
from tiers import in_tiers

# So high a peak keeps ERNIE's dialogues where they are.
GENTLE = {'optimizer.schedule.peak': 2e-3}
QUICK = dict(
  bert=Quick(500, 0.6, 0.25),
  roberta=Quick(250, 0.5),
  albert=Quick(400, 0.6, 0.6),
  spanbert=Quick(250, 0.5),
  ernie=Quick(400, 0.5, 0.25),
  ernie_dialogues=Quick(800, 0.5, 0.25, GENTLE),
)
SLOW = ('roberta', 'albert', 'spanbert', 'ernie', 'ernie_dialogues')


@pytest.mark.parametrize('name', in_tiers(QUICK, SLOW))
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
def test_a_system_comes_near_the_optimum(name, store_of):
  check(name, QUICK[name], store_of)
