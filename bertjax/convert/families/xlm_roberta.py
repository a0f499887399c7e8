"""XLMRobertaForMaskedLM and XLMRobertaModel: RoBERTa under another name."""

from bertjax.convert.families import roberta

FAMILY = roberta.FAMILY._replace(
  recipe='xlm_r',
  model_type='xlm-roberta',
  classes={
    name.replace('Roberta', 'XLMRoberta'): heads for name, heads in roberta.FAMILY.classes.items()
  },
  vocab_size=250_002,
)
