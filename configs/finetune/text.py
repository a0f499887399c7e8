"""Classes or numbers of texts and pairs of texts, from files of your own.

  python -m bertjax.main --config=configs/finetune/text.py --workdir=runs/mine \
      --config.init_from=hf:DIR --config.data.train=train.tsv --config.data.dev=dev.tsv \
      --config.data.task.text="('review',)" --config.data.task.label=stars \
      --config.data.task.classes="('bad','good')"

Texts with any number of classes each: text.py:several, whose column `label` has them with commas
between, or in JSON lines as a list; its exports are problem_type=multi_label_classification.

Files are .tsv, .csv or .jsonl, with columns by name. The recipe is BERT's for GLUE (Devlin et al.
2019, appendix A.3; google-research/bert, run_classifier.py). `init_from` names the encoder, a run
or hf:DIR, which brings its shape and vocabulary.
"""

from ml_collections import ConfigDict

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from configs import bert

PAPER = 'BERT paper, appendix A.3'
CODE = 'bert/run_classifier.py'
SCORES = dict(classes='accuracy', number='spearman', several='micro_f1')


def recipe(text: tuple[str, ...], label: str, classes: tuple[str, ...], best: str) -> Recipe:
  """Fine-tuning on a task.

  Args:
    text: columns of the text, or of the two texts of a pair.
    label: column of the class or number.
    classes: as they are spelled; (): a number is predicted.
    best: the score that names the best checkpoint.
  """
  c = defaults.base()
  c.update(cited(defaults.NAMES, name='finetune'))
  c.update(cited(PAPER, batch_size=32, epochs=3.0))
  c.update(cited(f'{CODE}: max_seq_length', length=128))
  c.update(cited(defaults.EVERY, log_steps=20))

  c.model = bert.model('base')
  head = (('label', 0),)  # as many classes as the task
  c.model.update(cited(f'{CODE}:create_model', words=False, labels=head, head_dropout=0.1))
  c.objective = cited(f'{CODE}:create_model', name='classify')
  c.optimizer = defaults.adamw()
  c.optimizer.schedule = (
    cited('bert/optimization.py:create_optimizer', name='bert_linear')
    | defaults.the_run(c)
    | cited(f'{PAPER}, of 5e-5, 3e-5, 2e-5', peak=3e-5)
    | cited(f'{CODE}: warmup_proportion', warmup_steps=c.get_ref('total_steps') // 10)
  )

  c.data.update(cited('ours: labelled files', reader='labelled'))
  c.data.task = cited(
    "ours: the task's columns",
    name='classify', text=text, label=label, classes=classes,
  )  # fmt: skip
  c.evals = ConfigDict()
  c.evals.dev = cited(defaults.EVERY, type='classification')
  c.best.update(
    cited('ours: the score that the task is known by', metric=f'eval/dev/{best}', mode='max')
  )
  return c


def get_config(arg: str | None = None):
  """The recipe for the column `label`: one of the classes, or with the argument 'number' a number,
  or with 'several' any number of the classes."""
  kind = defaults.parse_size(arg, SCORES, 'classes')
  c = recipe(('text',), 'label', (), SCORES[kind])
  if kind == 'several':
    c.data.task.update(cited("ours: the task's columns", several=','))
  return c
