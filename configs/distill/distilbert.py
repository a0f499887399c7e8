"""DistilBERT (Sanh et al. 2019): a BERT of half the layers learns all words of its teacher.

  python -m bertjax.main --config=configs/distill/distilbert.py --workdir=runs/distilbert \
      --config.objective.teacher.source=hf:BERT --config.data.input='wiki/*.txt' \
      --config.init_from="(('hf:BERT','params/embeddings/word','params/embeddings/word',()), \
        ('hf:BERT','params/embeddings/position','params/embeddings/position',()), \
        ('hf:BERT','params/embeddings/norm','params/embeddings/norm',()), \
        ('hf:BERT','params/encoder','params/encoder',(0,2,4,7,9,11)), \
        ('hf:BERT','params/mlm','params/mlm',()))"

The text has a sequence per line, of one or several sentences. Lines of fewer than 12 tokens, and
those that are unknown to the vocabulary by half, are left out; rare words are masked more often.
The loss is 5 x the divergence from the teacher at temperature 2, over all tokens, 2 x masked words
and 1 x the angle between the last states. The student has neither segments nor pooler, and its
position table stays as it was. It exports as DistilBertForMaskedLM, and fine-tuned as DistilBERT's
classes for sequences, choices, tokens and questions.
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.examples import recipes
from configs import roberta

CODE = 'transformers/examples/research_projects/distillation'
README = f'{CODE}/README.md'
TRAIN = f'{CODE}/train.py'


def recipe() -> Recipe:
  """The one that DistilBERT was trained by; where the original has sequences of alike lengths in a
  batch, rows are filled with several."""
  c = roberta.get_config('base')
  c.update(cited(defaults.NAMES, name='distilbert'))
  c.update(cited(f'{TRAIN}: batch_size x gradient_accumulation_steps', batch_size=250))
  c.update(cited('ours: as many as BERT reads', length=512))
  c.update(cited('ours: as long as you like; theirs are 3 epochs', total_steps=100_000))
  c.model.update(
    cited(defaults.NAMES, family='distilbert')
    | cited('DistilBERT paper, section 3', layers=6, types=0)
    | cited('bert/modeling.py:BertConfig', positions=512, position_offset=0)
    | cited("bert/modeling.py:layer_norm, by TensorFlow's default", norm_eps=1e-12)
    | cited('ours: [PAD] is a word like others', zero_row=None)
    # Of labels: the first token, dense, ReLU, dropout.
    | cited(
      'transformers/models/distilbert/modeling_distilbert.py:DistilBertForSequenceClassification',
      pooler_activation='relu',
      pooler_dropout=False,
    )
  )
  c.objective = (
    cited('ours: the run names it', name='distill')
    | cited(f'{README}: alpha_mlm, alpha_ce, alpha_cos', hard=2.0, soft=5.0, cosine=1.0)
    | cited(TRAIN, temperature=2.0)
    | cited(f'{CODE}/distiller.py: batchmean', kl='sum')
    | cited(f'{TRAIN}: restrict_ce_to_mask', everywhere=True)
  )
  c.data.plan, c.data.mask = recipes.DISTILBERT_PLAN, recipes.DISTILBERT_MASK
  c.data.update(
    cited(f'{README}: one sequence per line', split='lines')
    | cited('ours: rows of one length; theirs are batches of alike lengths', pack=16)
  )
  c.optimizer.update(
    cited(TRAIN, eps=1e-6, weight_decay=0.0, clip=5.0)
    | cited(f'{CODE}/distiller.py: betas', b2=0.98)
    | cited(f'{README}: freeze_pos_embs', freeze=('embeddings/position',))
  )
  c.optimizer.schedule.update(cited(TRAIN, peak=5e-4, warmup_steps=c.get_ref('total_steps') // 20))
  return c


def get_config(arg: str | None = None):
  """The recipe; it has one size, base."""
  defaults.parse_size(arg, ('base',), 'base')
  return recipe()
