"""BertForPreTraining, BertForMaskedLM, BertModel, and BERT with the heads of fine-tuning."""

from typing import Any

from bertjax.errors import UserError
from bertjax.formats.family import ACTIVATIONS, Family, Field, Layout, named
from bertjax.formats.tables import Row, dense, heads, layer, norm


def embeddings(base: str, types: bool = True) -> tuple[Row, ...]:
  """Returns the tables and their norm; a segment table if `types`."""
  kinds = Row('embeddings/type', f'{base}.embeddings.token_type_embeddings.weight', 'S,E->SE')
  return (
    Row('embeddings/word', f'{base}.embeddings.word_embeddings.weight', 'V,E->VE'),
    Row('embeddings/position', f'{base}.embeddings.position_embeddings.weight', 'T,E->TE'),
    *((kinds,) if types else ()),
    *norm('embeddings/norm', f'{base}.embeddings.LayerNorm', 'E'),
  )


def encoder(base: str, types: bool = True, net: str = 'encoder') -> tuple[Row, ...]:
  """Returns embeddings and layers; `base` begins their names, `net` our path of the layers."""
  return embeddings(base, types) + layer(
    f'{net}/layers',
    f'{base}.encoder.layer.{{layer}}.*',
    'attention.self.query attention.self.key attention.self.value attention.output.dense '
    'attention.output.LayerNorm intermediate.dense output.dense output.LayerNorm',
  )


def whole(
  model: Any,
  rows: tuple[Row, ...],
  words: tuple[Row, ...],
  decoder: str,
  labels: tuple[Row, ...] = (),
  spare: tuple[str, ...] = (),
) -> Layout:
  """Returns the layout of an encoder with the words' head and the other heads, `labels`. `decoder`
  has copies of the word table, the first row, and of the last row of `words`; '': there is none. A
  file may have the words' head, these copies and the dense layers `spare` where the model lacks
  them."""
  copies = {f'{decoder}.weight': rows[0].theirs, f'{decoder}.bias': words[-1].theirs}
  tied = {copy: source for copy, source in copies.items() if decoder and copy != source}
  spare = (
    *(row.theirs for row in words),
    *(f'{name}.{leaf}' for name in spare for leaf in ('weight', 'bias')),
  )
  if model.words:
    return Layout(rows + labels + words, tied, spare=spare)
  return Layout(rows + labels, spare=(*spare, *tied))


def word_head(dense_name: str, norm_name: str, bias: str) -> tuple[Row, ...]:
  """Returns the masked-LM head: dense, norm, and the bias over the tied word table."""
  return heads(
    (
      *dense('mlm/dense', dense_name, 'E', 'D'),
      *norm('mlm/norm', norm_name, 'E'),
      Row('mlm/bias', bias, 'V->V'),
    )
  )


DECODER = 'cls.predictions.decoder'
WORDS = word_head(
  'cls.predictions.transform.dense', 'cls.predictions.transform.LayerNorm', 'cls.predictions.bias'
)


def label_heads(model: Any, pooler: str, names: dict[str, str]) -> tuple[Row, ...]:
  """Returns the rows of the pooler and of `labels` and `token_labels`, whose names are `names` or
  `classifier`. Without a name of the pooler the labels read the token as it is."""
  rows: tuple[Row, ...] = ()
  if pooler and (model.labels or 'pooler' in model and model.pooler):
    rows += heads(dense('pooler', pooler, 'O', 'D'))
  for name, classes in (*model.labels, *model.token_labels):
    rows += heads(dense(name, names.get(name, 'classifier'), 'C', 'D'), C=classes)
  return rows


def dense_heads(model: Any, pooler: str) -> tuple[Row, ...]:
  """Returns `label_heads` of a family whose class for sequences has a dense layer of its own; the
  other classes have a pooler of this name."""
  of_sequences = [name for name, _ in model.labels if name != 'right']
  names = {'span': 'qa_outputs', **dict.fromkeys(of_sequences, 'classifier.out_proj')}
  return label_heads(model, 'classifier.dense' if of_sequences else pooler, names)


def layout_of(base: str):
  """`Family.layout` of classes with BERT's heads, whose encoder has this name."""
  names = {'next': 'cls.seq_relationship', 'span': 'qa_outputs'}
  spare = f'{base}.pooler.dense', names['next']

  def layout(model: Any) -> Layout:
    labels = label_heads(model, f'{base}.pooler.dense', names)
    return whole(model, encoder(base, bool(model.types)), WORDS, DECODER, labels, spare)

  return layout


FIELDS = named(
  vocab_size=('vocab_size', 30_522), width=('hidden_size', 768), layers=('num_hidden_layers', 12),
  heads=('num_attention_heads', 12), ffn=('intermediate_size', 3072),
  activation=('hidden_act', 'gelu', ACTIVATIONS), dropout=('hidden_dropout_prob', 0.1),
  attention_dropout=('attention_probs_dropout_prob', 0.1),
  positions=('max_position_embeddings', 512), types=('type_vocab_size', 2),
  init_std=('initializer_range', 0.02), norm_eps=('layer_norm_eps', 1e-12),
)  # fmt: skip
# Of a model with learned positions, own layers and a head with a transform.
PLAIN = dict(
  sinusoid=False, extra=(), attend='example', transform=True, sharing='none', groups=1,
  inner_groups=1, position_offset=0, embedding_width=0, pooler_activation='tanh',
  pooling='first',
)  # fmt: skip
THEIRS = dict(
  is_decoder=(False,),
  add_cross_attention=(False,),
  tie_word_embeddings=(True,),
  position_embedding_type=('absolute', None),
)


def with_defaults(**own: Any) -> tuple[Field, ...]:
  """Returns FIELDS with other defaults."""
  return tuple(field._replace(default=own.get(field.ours, field.default)) for field in FIELDS)


def plain(without: str, **own: Any) -> dict[str, Any]:
  """Returns PLAIN without some fields, whose values differ from model to model, and with others."""
  return {key: value for key, value in PLAIN.items() if key not in without.split()} | own


def require_gelu(model: Any, name: str) -> dict[str, Any]:
  """Returns no further field; refuses words whose activation is not that of the class."""
  if model.words and model.activation != 'gelu_erf':
    raise UserError(
      f'the words of {name} are scored through the erf GELU: expected '
      f"config.model.activation='gelu_erf', got {model.activation!r}"
    )
  return {}


def require_ffn(model: Any, classes: str) -> dict[str, Any]:
  """Returns no further field; refuses another feed-forward width than the classes have."""
  if model.ffn != 4 * model.width:
    raise UserError(f'{classes} config.model.ffn=4 * width={4 * model.width}, got {model.ffn}')
  return {}


def tuned_classes(prefix: str) -> dict[str, str]:
  """Returns the classes of a family that fine-tuning makes."""
  return {
    f'{prefix}ForQuestionAnswering': 'token:span',
    f'{prefix}ForMultipleChoice': 'text:right',
    f'{prefix}ForSequenceClassification': 'text:*',
    f'{prefix}ForTokenClassification': 'token:*',
  }


def masked_classes(prefix: str, bare: str) -> dict[str, str]:
  """Returns those, of masked words, and the one without a head but `bare`."""
  return {f'{prefix}ForMaskedLM': 'word', f'{prefix}Model': bare, **tuned_classes(prefix)}


def classes_of(prefix: str, label: str = 'next') -> dict[str, str]:
  """Returns the classes of a family with BERT's heads."""
  return {f'{prefix}ForPreTraining': f'word text:{label}', **masked_classes(prefix, 'pooled')}


FAMILY = Family(
  model='bert',
  model_type='bert',
  base='bert',
  classes=classes_of('Bert'),
  layout=layout_of('bert'),
  fields=FIELDS,
  fixed=PLAIN,
  theirs=THEIRS,
)
