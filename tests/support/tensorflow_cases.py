"""Checkpoints of TensorFlow 1 made from models of PyTorch `transformers`, by the original names.

Which tensor is which is said once more here, so that nothing of the tables under test is in it.
Kernels of TensorFlow are [in, out].
"""

import json
import re

import numpy as np
from slow_imports import torch, transformers
from torch_models import loud

VOCAB, TYPES, POSITIONS = 211, 2, 40


def write(path, tensors, step: int | None = None, slots: bool = False) -> None:
  """Writes PATH.index and PATH.data-... by TensorFlow; the slots follow from the values."""
  import tensorflow as tf

  tensors = dict(tensors)
  if slots:
    for name, value in list(tensors.items()):
      tensors |= {f'{name}/adam_m': value * 2, f'{name}/adam_v': value * value}
  if step is not None:
    tensors['global_step'] = np.int64(step)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    variables = [
      tf.compat.v1.get_variable(name, initializer=tf.constant(value), use_resource=False)
      for name, value in tensors.items()
    ]
    session.run(tf.compat.v1.global_variables_initializer())
    saver = tf.compat.v1.train.Saver(variables)
    saver.save(session, str(path), write_meta_graph=False)


def describe(directory, name: str, **fields) -> None:
  """Writes the JSON file of a model."""
  (directory / name).write_text(json.dumps(fields))


def array(tensor: 'torch.Tensor') -> np.ndarray:
  return tensor.detach().numpy().copy()


def tensors_of(model, names: dict[str, str]) -> dict[str, np.ndarray]:
  """The state of a model without tables that are said twice; `names` are parts of names here and
  there."""
  found = {}
  for name, tensor in model.state_dict().items():
    for theirs, ours in names.items():
      name = name.replace(theirs, ours)
    scope, _, leaf = re.sub(r'\.(\d+)', r'_\1', name).replace('.', '/').rpartition('/')
    if scope.endswith(('decoder', 'lm_head')):
      continue
    if 'LayerNorm' in scope:
      leaf = dict(weight='gamma', bias='beta')[leaf]
    elif leaf == 'weight' and not scope.endswith('_embeddings'):
      tensor, leaf = tensor.T, 'kernel'
    found[scope if leaf == 'weight' else f'{scope}/{leaf}'] = array(tensor)
  return found


# Where TensorFlow has them as [out, in].
HEADS = {
  'predictions.bias': 'predictions.output_bias',
  'seq_relationship.weight': 'seq_relationship.output_weights',
  'seq_relationship.bias': 'seq_relationship.output_bias',
}
OF_ALBERT = {
  'albert.': 'bert.', 'albert_layer_groups': 'transformer.group', 'albert_layers': 'inner_group',
  'attention.LayerNorm': 'LayerNorm', 'attention.dense': 'attention_1.output.dense',
  'attention.': 'attention_1.self.', 'ffn_output.': 'ffn_1.intermediate.output.dense.',
  'ffn.': 'ffn_1.intermediate.dense.', 'full_layer_layer_norm': 'LayerNorm_1',
  'pooler.': 'pooler.dense.', 'predictions.dense': 'predictions.transform.dense',
  'predictions.LayerNorm': 'predictions.transform.LayerNorm',
  'sop_classifier.classifier': 'seq_relationship',
}  # fmt: skip


def bert(width: int = 48, heads: int = 3):
  """(torch model, tensors, bert_config.json): 3 heads of 16, of which no default is, or others."""
  sizes = dict(
    vocab_size=VOCAB, hidden_size=width, num_hidden_layers=2, num_attention_heads=heads,
    intermediate_size=80, max_position_embeddings=POSITIONS, type_vocab_size=TYPES,
  )  # fmt: skip
  model = loud(
    transformers.BertForPreTraining(transformers.BertConfig(**sizes, hidden_act='gelu_new'))
  )
  rates = dict(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3, initializer_range=0.02)
  return model, tensors_of(model, HEADS), dict(sizes, hidden_act='gelu', **rates)


def albert():
  """(torch model, tensors, albert_config.json): four layers of two groups with two blocks each."""
  config = transformers.AlbertConfig(
    vocab_size=VOCAB, embedding_size=24, hidden_size=48, num_hidden_layers=4,
    num_attention_heads=3, intermediate_size=80, max_position_embeddings=POSITIONS,
    num_hidden_groups=2, inner_group_num=2, hidden_act='gelu_new',
  )  # fmt: skip
  model = loud(transformers.AlbertForPreTraining(config))
  tensors = tensors_of(model, OF_ALBERT | HEADS)
  heads = ('predictions/', 'seq_relationship/')
  tensors = {f'cls/{n}' if n.startswith(heads) else n: x for n, x in tensors.items()}
  given = dict(
    embedding_size=24, hidden_size=48, num_hidden_layers=4, num_attention_heads=3,
    intermediate_size=80, num_hidden_groups=2, inner_group_num=2, hidden_act='gelu',
    hidden_dropout_prob=0, attention_probs_dropout_prob=0, vocab_size=VOCAB,
    max_position_embeddings=POSITIONS, type_vocab_size=TYPES, net_structure_type=0, gap_size=0,
  )  # fmt: skip
  return model, tensors, given


def electra():
  """((discriminator, generator), tensors): heads are of 64, as nothing says otherwise."""
  common = dict(
    vocab_size=VOCAB, embedding_size=32, num_hidden_layers=2, type_vocab_size=TYPES,
    max_position_embeddings=POSITIONS,
  )  # fmt: skip
  size = lambda width: dict(
    hidden_size=width, num_attention_heads=width // 64, intermediate_size=4 * width
  )
  config = lambda width: transformers.ElectraConfig(**common, **size(width))
  judge = loud(transformers.ElectraForPreTraining(config(128)))
  maker = loud(transformers.ElectraForMaskedLM(config(64)))
  with torch.no_grad():
    tables = zip(
      judge.electra.embeddings.parameters(), maker.electra.embeddings.parameters(), strict=True
    )
    for source, copy in tables:
      copy.copy_(source)
  tensors = tensors_of(judge, {'dense_prediction': 'dense_1'})
  heads = {'electra.': 'generator.', 'generator_lm_head.bias': 'generator_predictions.output_bias'}
  own = tensors_of(maker, heads).items()
  tensors |= {n: x for n, x in own if not n.startswith('generator/embeddings/')}
  return (judge, maker), tensors
