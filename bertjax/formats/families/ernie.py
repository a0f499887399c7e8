"""ErnieForPreTraining and the others of BERT's heads, without task ids."""

from bertjax.formats.families import bert
from bertjax.formats.family import Family

FAMILY = Family(
  model='bert',
  recipe='ernie',
  model_type='ernie',
  base='ernie',
  classes=bert.classes_of('Ernie'),
  layout=bert.layout_of('ernie'),
  fields=bert.FIELDS,
  fixed=bert.PLAIN,
  theirs=dict(bert.THEIRS, use_task_id=(False,)),
)
