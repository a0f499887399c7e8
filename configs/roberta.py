"""RoBERTa (Liu et al. 2019, fairseq): dynamic masks over full sentences, no next-sentence
prediction.

  python -m bertjax.main --config=configs/roberta.py:base --workdir=runs/roberta \
      --config.data.input='text/*.txt' --config.data.vocab=DIR_WITH_vocab.json_AND_merges.txt

Sizes: test, tiny, mini, small, medium (BERT's shapes), base, large (the paper's).
"""

from bertjax.cited import cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models.bert import SIZES
from configs import bert

TABLE = 'RoBERTa paper, table 9'


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'roberta-{size}'))
  c.update(cited(TABLE, total_steps=500_000, batch_size=8192, length=512))
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))

  c.model = bert.model(size)
  if size in ('base', 'large'):
    c.model.update(cited(TABLE, **SIZES[size]))
  c.model.update(
    cited(defaults.NAMES, family='roberta')
    # Behind the id of the pad token, 1 in fairseq's vocabulary.
    | cited(
      'fairseq/fairseq/modules/positional_embedding.py:PositionalEmbedding',
      positions=514,
      position_offset=-1,
    )
    | cited('ours: as transformers, a constant row; fairseq has none', types=1)
    | cited("fairseq/fairseq/modules/layer_norm.py, by torch's default", norm_eps=1e-5)
    | cited('fairseq/fairseq/models/roberta/model.py:base_architecture', activation='gelu_erf')
    | cited(
      'fairseq/fairseq/modules/transformer_sentence_encoder.py:init_bert_params',
      initializer='normal',
      init_std=0.02,
    )
    | cited(TABLE, dropout=0.1, attention_dropout=0.1)
    | cited('RoBERTa paper, section 4.2: no next sentence', labels=())
    | cited(
      'fairseq/fairseq/models/roberta/model.py:RobertaClassificationHead', pooler_dropout=True
    )
    # The vector of the pad token starts at zero.
    | cited('fairseq/fairseq/modules/transformer_sentence_encoder.py:build_embedding', zero_row=-1)
  )
  c.objective = cited('fairseq/fairseq/criterions/masked_lm.py', name='mlm', plus=0.0)

  c.optimizer = defaults.adamw()
  c.optimizer.update(
    cited(TABLE, b2=0.98, eps=1e-6, weight_decay=0.01, clip=0.0)  # 0: off
    | cited('fairseq/fairseq/optim/adam.py:Adam', bias_correction=True, eps_first=True)
    # Norms and biases too.
    | cited('fairseq/fairseq/trainer.py: one group of parameters', decay=defaults.DECAY_ALL)
  )
  warmup, peak = (30_000, 4e-4) if size == 'large' else (24_000, 6e-4)
  c.optimizer.schedule = (
    cited('fairseq/fairseq/optim/lr_scheduler/polynomial_decay_schedule.py', name='linear')
    | defaults.the_run(c)
    | cited(TABLE, peak=peak, warmup_steps=c.get_ref('total_steps') * warmup // 500_000)
  )

  c.data.plan, c.data.mask = recipes.ROBERTA_PLAN, recipes.ROBERTA_MASK
  c.data.update(cited("ours: a line of the corpus is fairseq's unit", split='lines'))
  if size == 'tiny':
    defaults.laptop(c)
  return c
