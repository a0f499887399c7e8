"""ErnieForPreTraining and the others of BERT's heads, without task ids."""

from bertjax.formats.families import bert

FAMILY = bert.FAMILY._replace(
  recipe='ernie',
  model_type='ernie',
  base='ernie',
  classes=bert.classes_of('Ernie'),
  layout=bert.layout_of('ernie'),
  theirs=dict(bert.THEIRS, use_task_id=(False,)),
)
