"""BERT (Devlin et al. 2019, google-research/bert): masked tokens and next sentence on English text.

  python -m bertjax.main --config=configs/bert.py:base --workdir=runs/bert \
      --config.data.input='wiki/*.txt' --config.data.vocab=vocab.txt

Sizes: test, tiny, mini, small, medium, base, large. The recipe is the paper's: batch 256, one
million steps, peak learning rate 1e-4, 90% of the steps at length 128 and the rest at 512. tiny, of
this and the other systems, has a laptop's batches and rates: see `defaults.laptop`.
"""

from ml_collections import ConfigDict

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models.bert import SIZES

SMALL = 'bert/README.md, the smaller models (Turc et al. 2019)'
SHAPES = {  # of `SIZES`: where they are from
  'test': 'ours: two layers of 8 heads, which every mesh of the tests divides',
  **dict.fromkeys(('tiny', 'mini', 'small', 'medium'), SMALL),
  **dict.fromkeys(('base', 'large'), 'BERT paper, section 3'),
}


def model(size: str) -> Recipe:
  """`config.model` of a size, with the numerics of google-research/bert."""
  return Recipe(
    cited(defaults.NAMES, name='bert', family='bert', size=size)  # family: see bertjax/convert
    | cited(SHAPES[size], **SIZES[size])
    | cited(
      'bert/modeling.py:BertConfig',
      positions=512,
      dropout=0.1,
      attention_dropout=0.1,
      init_std=0.02,
    )
    | cited('bert/README.md, bert_config.json of the released models: type_vocab_size', types=2)
    | cited("bert/modeling.py:layer_norm, by TensorFlow's default", norm_eps=1e-12)
    | cited('bert/modeling.py:gelu', activation='gelu_tanh')
    | cited('bert/modeling.py:create_initializer', initializer='truncated_normal')
    | cited('bert/run_pretraining.py:get_next_sentence_output', labels=(('next', 2),))
  )


def recipe(size: str) -> Recipe:
  """The paper's, whatever the size."""
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'bert-{size}'))
  c.update(cited('BERT paper, appendix A.2', total_steps=1_000_000, batch_size=256, length=512))
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))

  c.model = model(size)
  c.objective = cited('bert/run_pretraining.py:get_masked_lm_output', name='mlm', plus=1e-5)

  c.optimizer = defaults.adamw()
  c.optimizer.schedule = (
    cited('bert/optimization.py:create_optimizer', name='bert_linear')
    | defaults.the_run(c)
    | cited('BERT paper, appendix A.2', peak=1e-4, warmup_steps=c.get_ref('total_steps') // 100)
  )

  c.data.plan, c.data.mask = recipes.BERT_PLAN, recipes.BERT_MASK

  short = dict(share=0.9, length=c.get_ref('length') // 4)  # 128 of 512
  c.phases = cited('BERT paper, appendix A.2', phase1=short, phase2=dict(share=0.1))
  return c


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = recipe(size)
  if size == 'tiny':
    defaults.laptop(c)
    c.phases = ConfigDict()
  return c
