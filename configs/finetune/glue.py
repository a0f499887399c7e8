"""GLUE (Wang et al. 2019): nine tasks of single texts and of pairs.

  python -m bertjax.main --config=configs/finetune/glue.py:sst2 --workdir=runs/sst2 \
      --config.init_from=hf:DIR --config.data.train=SST-2/train.tsv --config.data.dev=SST-2/dev.tsv

Tasks: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, with the columns of GLUE's own files (of
MRPC, msr_paraphrase_train.txt renamed to .tsv). The best checkpoint is that with the best of the
scores that GLUE's table has for the task.

MNLI is judged twice: by dev_matched.tsv (--config.data.dev), which names the best checkpoint, and
by dev_mismatched.tsv (--config.evals.mm.file), whose scores are eval/mm/... AX, the diagnostic set,
is predicted by a run on MNLI.

The recipe is BERT's; that of another family is glue.py:sst2,roberta, or albert, electra,
electra_large (families.py). What the papers chose from is a grid of `bertjax.sweep --grid=bert`
(grids.py).
"""

from bertjax.cited import cited
from bertjax.config import defaults
from configs.finetune import families, text

ENTAILMENT = ('contradiction', 'entailment', 'neutral')
ENTAILED = ('entailment', 'not_entailment')
# Columns of the text, the label and its classes, the score, and the header where a file has none.
TASKS = dict(
  cola=(('sentence',), 'label', ('0', '1'), 'mcc', ('source', 'label', 'mark', 'sentence')),
  sst2=(('sentence',), 'label', ('0', '1'), 'accuracy', ()),
  mrpc=(('#1 String', '#2 String'), 'Quality', ('0', '1'), 'f1', ()),
  stsb=(('sentence1', 'sentence2'), 'score', (), 'spearman', ()),
  qqp=(('question1', 'question2'), 'is_duplicate', ('0', '1'), 'f1', ()),
  mnli=(('sentence1', 'sentence2'), 'gold_label', ENTAILMENT, 'accuracy', ()),
  qnli=(('question', 'sentence'), 'label', ENTAILED, 'accuracy', ()),
  rte=(('sentence1', 'sentence2'), 'label', ENTAILED, 'accuracy', ()),
  wnli=(('sentence1', 'sentence2'), 'label', ('0', '1'), 'accuracy', ()),
)  # fmt: skip


def get_config(arg: str | None = None):
  """The recipe for the task, and the family, named by `arg` (default sst2)."""
  name, family = families.split(arg, tuple(TASKS), 'sst2')
  columns, label, classes, best, header = TASKS[name]
  c = text.recipe(columns, label, classes, best)
  c.update(cited(defaults.NAMES, name=f'finetune-{name}'))
  if header:
    c.data.task.update(cited("GLUE's files", header=header))
  if name == 'mnli':
    c.evals.mm = cited("GLUE's files", **c.evals.dev, file='dev_mismatched.tsv')
  families.apply(c, family, name)
  return c
