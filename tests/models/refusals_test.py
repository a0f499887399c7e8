"""What a model cannot be is refused by name before anything is compiled."""

import cases
import pytest
from mutation import mutation

from bertjax.tools.bench.parts import own_step

TXL = 'transformer_xl'
ODD = dict(width=36, heads=3, generator_head=12)


@pytest.mark.parametrize(
  'recipe, model, objective, said',
  [
    ('bert', dict(attend='all'), {}, 'causal, example, language, self'),
    ('bert', dict(heads=7), {}, 'multiple of model.heads'),
    ('bert', dict(sharing='atention'), {}, "did you mean 'attention'"),
    ('bert', dict(sharing='ffn', groups=2), {}, "sharing='all' only"),
    ('bert', dict(sharing='all', groups=3), {}, 'from 1 to layers=2'),
    ('bert', dict(sharing='all', inner_groups=0), {}, 'at least 1, got 1 and 0'),
    ('longformer', dict(sharing='all'), {}, "sharing: Longformer has 'none', got 'all'"),
    ('longformer', dict(attend='causal'), {}, "attend: Longformer has 'example', got 'causal'"),
    ('bigbird', dict(attend='causal'), {}, 'attend: BigBird has '),
    ('modernbert', dict(heads=4, width=36), {}, 'even quotient'),
    ('xlnet', dict(width=60), {}, 'must be a multiple of model.heads, got 60 and 8'),
    ('xlnet', dict(reuse_len=0), {}, 'mem_len >= 0 and reuse_len >= 1, got .* and 0'),
    (TXL, dict(attention='absolute', mem_len=4), {}, 'mem_len=0'),
    (TXL, dict(attention='shaw'), {}, 'learned_positions=0'),
    (TXL, dict(learned_positions=3), {}, 'learns no positions'),
    (TXL, dict(attention='deeper', mem_len=0, learned_positions=3), {}, 'has room for'),
    (TXL, dict(same_length=True, mem_len=0), {}, 'mem_len >= 1'),
    (TXL, dict(same_length=True, mem_len=3), {}, 'has room for 3'),
    (TXL, dict(width=63), {}, 'even width'),
    (TXL, dict(attention='relativ'), {}, "did you mean 'relative'"),
    ('deberta_v3', dict(ODD, generator='uniform'), {}, "got 'uniform' with 3 heads of width 36"),
    ('deberta_v3', dict(ODD, sharing='all'), {}, "sharing='all'"),
    ('deberta_v3', dict(ODD, embedding_width=12), {}, 'embedding_width=12 of width=36'),
    ('electra', {}, dict(copy_generator=True), 'generator of the size of the discriminator'),
    ('electra', dict(generator='uniform'), dict(train='generator'), 'uniform'),
    ('electra', {}, dict(electric=True), "generator='two_tower'"),
    ('electra', dict(generator='twin'), {}, 'own, shared, two_tower, uniform'),
    ('electra', dict(generator_layers=0.1), {}, 'at least one layer'),
    ('electra', dict(labels=(('next', 2),)), {}, 'the heads of ELECTRA are'),
    ('electra', dict(name='bert'), {}, "name='deberta_v3' or 'electra'"),
  ],
  ids=str,
)
@mutation(
  "  if settings.train == 'generator' and model.generator == 'uniform':",
  '  if False:',
  file='bertjax/objectives/rtd.py',
)
def test_what_cannot_work_is_refused(recipe, model, objective, said):
  c = cases.config(recipe)
  own_step.objective_of(c)
  c.length = 4 if recipe == TXL else c.length
  c.model.update(model)
  c.objective.update(objective)
  with pytest.raises(ValueError, match=said):
    own_step.objective_of(c)
