"""Tags of words: named entities (ner), parts of speech (pos).

  python -m bertjax.main --config=configs/finetune/tagging.py:ner --workdir=runs/ner \
      --config.init_from=hf:DIR --config.data.train=train.conll --config.data.dev=dev.conll \
      --config.data.task.classes="('PER','LOC','ORG')"

Files have a line for each word and an empty one behind each sentence (CoNLL), the word in the first
column and its tag in the last; CoNLL-U has them in `--config.data.task.columns="(2,4)"`. Tables and
JSON lines have the columns tokens and tags. Without classes, ner has the types of CoNLL-2003, pos
the parts of speech of Universal Dependencies. The best checkpoint is that with the best F1 of
entities, or accuracy. `init_from` names the encoder; for names a cased one is better.
"""

from ml_collections import ConfigDict

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from configs.finetune import text

CONLL = ('PER', 'ORG', 'LOC', 'MISC')  # Tjong Kim Sang and De Meulder 2003
UPOS = (
  'ADJ', 'ADP', 'ADV', 'AUX', 'CCONJ', 'DET', 'INTJ', 'NOUN', 'NUM', 'PART', 'PRON', 'PROPN',
  'PUNCT', 'SCONJ', 'SYM', 'VERB', 'X',
)  # fmt: skip
KINDS = dict(ner=('iob2', CONLL, 'f1'), pos=('plain', UPOS, 'accuracy'))
PAPER = 'BERT paper, section 5.3'


def recipe(scheme: str, classes: tuple[str, ...], best: str) -> Recipe:
  """Fine-tuning on tags.

  Args:
    scheme: 'iob2' or 'plain'.
    classes: types of the entities, or the tags.
    best: the score that names the best checkpoint.
  """
  c = text.recipe((), '', (), best)
  heads = dict(labels=(), token_labels=(('tag', 0),))  # as many tags as the task
  c.model.update(cited(PAPER, **heads))
  c.objective = cited(PAPER, name='tag')
  c.data.task = cited(
    "ours: the task's columns",
    name='tags', scheme=scheme, classes=classes,
  )  # fmt: skip
  c.evals = ConfigDict()
  c.evals.dev = cited(defaults.EVERY, type='tagging')
  return c


def get_config(arg: str | None = None):
  """The recipe for `arg`: ner (the default) or pos."""
  kind = defaults.parse_size(arg, KINDS, 'ner')
  c = recipe(*KINDS[kind])
  c.update(cited(defaults.NAMES, name=f'finetune-{kind}'))
  return c
