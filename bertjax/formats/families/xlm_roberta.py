"""XLMRobertaForMaskedLM and the others: RoBERTa under another name."""

from bertjax.formats.families import bert, roberta

FAMILY = roberta.FAMILY._replace(
  fields=(*bert.FIELDS, roberta.OFFSET),
  recipe='xlm_r',
  model_type='xlm-roberta',
  classes={
    name.replace('Roberta', 'XLMRoberta'): heads for name, heads in roberta.FAMILY.classes.items()
  },
  alike={},
)
