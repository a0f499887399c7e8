"""XLMRobertaForMaskedLM and the others: RoBERTa under another name."""

from bertjax.formats.families import roberta

FAMILY = roberta.FAMILY._replace(
  fields=tuple(f._replace(default=30_522) if f.ours == 'vocab_size' else f for f in roberta.FIELDS),
  recipe='xlm_r',
  model_type='xlm-roberta',
  classes={
    name.replace('Roberta', 'XLMRoberta'): heads for name, heads in roberta.FAMILY.classes.items()
  },
  alike={},
)
