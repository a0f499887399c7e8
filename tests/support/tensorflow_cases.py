"""Checkpoints of TensorFlow 1 made from models of PyTorch `transformers`, by the original names.

Which tensor is which is said by the modules' attributes here, so that nothing of the tables under
test is in it. Kernels of TensorFlow are [in, out].
"""

import json

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


def linear(scope: str, module) -> dict[str, np.ndarray]:
  return {f'{scope}/kernel': array(module.weight).T, f'{scope}/bias': array(module.bias)}


def norm(scope: str, module) -> dict[str, np.ndarray]:
  return {f'{scope}/gamma': array(module.weight), f'{scope}/beta': array(module.bias)}


def embeddings(scope: str, module) -> dict[str, np.ndarray]:
  return {
    f'{scope}/word_embeddings': array(module.word_embeddings.weight),
    f'{scope}/position_embeddings': array(module.position_embeddings.weight),
    f'{scope}/token_type_embeddings': array(module.token_type_embeddings.weight),
    **norm(f'{scope}/LayerNorm', module.LayerNorm),
  }


def layers(scope: str, modules) -> dict[str, np.ndarray]:
  """Of BERT and of the nets of ELECTRA."""
  found = {}
  for i, module in enumerate(modules):
    at, attention = f'{scope}/layer_{i}', module.attention
    for name in ('query', 'key', 'value'):
      found |= linear(f'{at}/attention/self/{name}', getattr(attention.self, name))
    found |= linear(f'{at}/attention/output/dense', attention.output.dense)
    found |= norm(f'{at}/attention/output/LayerNorm', attention.output.LayerNorm)
    found |= linear(f'{at}/intermediate/dense', module.intermediate.dense)
    found |= linear(f'{at}/output/dense', module.output.dense)
    found |= norm(f'{at}/output/LayerNorm', module.output.LayerNorm)
  return found


def bert():
  """(torch model, tensors, bert_config.json): 3 heads of 16, of which no default is."""
  config = transformers.BertConfig(
    vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=3,
    intermediate_size=80, max_position_embeddings=POSITIONS, type_vocab_size=TYPES,
    hidden_act='gelu_new',
  )  # fmt: skip
  model = loud(transformers.BertForPreTraining(config))
  tensors = embeddings('bert/embeddings', model.bert.embeddings)
  tensors |= layers('bert/encoder', model.bert.encoder.layer)
  tensors |= linear('bert/pooler/dense', model.bert.pooler.dense)
  head = model.cls.predictions
  tensors |= linear('cls/predictions/transform/dense', head.transform.dense)
  tensors |= norm('cls/predictions/transform/LayerNorm', head.transform.LayerNorm)
  tensors['cls/predictions/output_bias'] = array(head.bias)
  tensors['cls/seq_relationship/output_weights'] = array(model.cls.seq_relationship.weight)
  tensors['cls/seq_relationship/output_bias'] = array(model.cls.seq_relationship.bias)
  given = dict(
    vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=3,
    intermediate_size=80, max_position_embeddings=POSITIONS, type_vocab_size=TYPES,
    hidden_act='gelu', hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3,
    initializer_range=0.02,
  )  # fmt: skip
  return model, tensors, given


def albert():
  """(torch model, tensors, albert_config.json): four layers of two groups with two blocks each."""
  config = transformers.AlbertConfig(
    vocab_size=VOCAB, embedding_size=24, hidden_size=48, num_hidden_layers=4,
    num_attention_heads=3, intermediate_size=80, max_position_embeddings=POSITIONS,
    num_hidden_groups=2, inner_group_num=2, hidden_act='gelu_new',
  )  # fmt: skip
  model = loud(transformers.AlbertForPreTraining(config))
  net, head, order = model.albert, model.predictions, model.sop_classifier.classifier
  tensors = embeddings('bert/embeddings', net.embeddings)
  project = net.encoder.embedding_hidden_mapping_in
  tensors |= linear('bert/encoder/embedding_hidden_mapping_in', project)
  for group, blocks in enumerate(net.encoder.albert_layer_groups):
    for inner, block in enumerate(blocks.albert_layers):
      at = f'bert/encoder/transformer/group_{group}/inner_group_{inner}'
      for name in ('query', 'key', 'value'):
        tensors |= linear(f'{at}/attention_1/self/{name}', getattr(block.attention, name))
      tensors |= linear(f'{at}/attention_1/output/dense', block.attention.dense)
      tensors |= norm(f'{at}/LayerNorm', block.attention.LayerNorm)
      tensors |= linear(f'{at}/ffn_1/intermediate/dense', block.ffn)
      tensors |= linear(f'{at}/ffn_1/intermediate/output/dense', block.ffn_output)
      tensors |= norm(f'{at}/LayerNorm_1', block.full_layer_layer_norm)
  tensors |= linear('bert/pooler/dense', net.pooler)
  tensors |= linear('cls/predictions/transform/dense', head.dense)
  tensors |= norm('cls/predictions/transform/LayerNorm', head.LayerNorm)
  tensors['cls/predictions/output_bias'] = array(head.bias)
  tensors['cls/seq_relationship/output_weights'] = array(order.weight)
  tensors['cls/seq_relationship/output_bias'] = array(order.bias)
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
  tensors = embeddings('electra/embeddings', judge.electra.embeddings)
  for scope, model in (('electra', judge), ('generator', maker)):
    tensors |= linear(f'{scope}/embeddings_project', model.electra.embeddings_project)
    tensors |= layers(f'{scope}/encoder', model.electra.encoder.layer)
  head = judge.discriminator_predictions
  tensors |= linear('discriminator_predictions/dense', head.dense)
  tensors |= linear('discriminator_predictions/dense_1', head.dense_prediction)
  tensors |= linear('generator_predictions/dense', maker.generator_predictions.dense)
  tensors |= norm('generator_predictions/LayerNorm', maker.generator_predictions.LayerNorm)
  tensors['generator_predictions/output_bias'] = array(maker.generator_lm_head.bias)
  return (judge, maker), tensors


def xlnet(model) -> dict[str, np.ndarray]:
  """The tensors of an XLNetLMHeadModel, biases of all layers in one."""
  net, at = model.transformer, 'model/transformer'
  attention = [layer.rel_attn for layer in net.layer]
  stack = lambda name: np.stack([array(getattr(each, name)) for each in attention])
  tensors = {
    f'{at}/word_embedding/lookup_table': array(net.word_embedding.weight),
    f'{at}/mask_emb/mask_emb': array(net.mask_emb),
    f'{at}/seg_embed': stack('seg_embed'),
    'model/lm_loss/bias': array(model.lm_loss.bias),
  }
  tensors |= {f'{at}/{name}': stack(name) for name in ('r_w_bias', 'r_r_bias', 'r_s_bias')}
  for i, layer in enumerate(net.layer):
    scope = f'{at}/layer_{i}'
    for letter in 'qkvro':
      tensors[f'{scope}/rel_attn/{letter}/kernel'] = array(getattr(layer.rel_attn, letter))
    tensors |= norm(f'{scope}/rel_attn/LayerNorm', layer.rel_attn.layer_norm)
    tensors |= linear(f'{scope}/ff/layer_1', layer.ff.layer_1)
    tensors |= linear(f'{scope}/ff/layer_2', layer.ff.layer_2)
    tensors |= norm(f'{scope}/ff/LayerNorm', layer.ff.layer_norm)
  return tensors
