"""init_from of fine-tuning: the encoder of a model of another kind than the config's."""

import jax
import numpy as np
import pytest
import torch_models
from flax.core import meta
from mutation import mutation

from bertjax import models
from bertjax.checkpoint import encoders, init_from
from bertjax.convert import huggingface
from bertjax.errors import UserError
from configs import electra, spanbert, transformer_xl
from configs.finetune import text


def config_of(source, **model):
  c = text.get_config('classes')
  c.init_from = source
  c.model.update(model)
  return c


def first_variables(c):
  """Variables of the model with a head for three classes."""
  c.model.labels = (('label', 3),)
  batch = {k: np.zeros((1, 8), np.int32) for k in ('token_BT', 'type_BT', 'position_BT')}
  batch |= dict(example_BT=np.ones((1, 8), np.int32), first_BG=np.zeros((1, 1), np.int32))
  model = models.build(c.model)
  return meta.unbox(jax.jit(model.init)(jax.random.key(0), batch))


def save(case, path):
  torch_models.save(case, path)
  return f'hf:{path}'


@mutation(
  'encoders: the projection stays behind',
  'bertjax/convert/families/electra_net.py',
  "projection = dict(projection=net['projection']) if 'projection' in net else {}",
  'projection = {}',
)
def test_of_electra_it_is_the_discriminator(tmp_path):
  """What ElectraForPreTraining holds is what a class with the same encoder is read as."""
  c, said, source = init_from.adopt(
    config_of(save('ElectraForPreTraining', tmp_path / 'hf')), tmp_path
  )
  assert (c.model.name, c.model.family, c.model.embedding_width) == ('bert', 'electra_net', 20)
  assert (c.model.pooler_activation, c.model.pooler_dropout) == ('gelu_erf', True)
  assert 'pooler_dropout False -> True' in said[0]
  new, said = init_from.loader(c, None, source)(first_variables(c))
  assert 'none of them: label, pooler' in said[-2] and said[-1].endswith('none of them: rtd')
  state = torch_models.build('ElectraForPreTraining').state_dict()
  state = {k: v.numpy() for k, v in state.items() if not k.startswith('discriminator_pred')}
  headless = c.model.copy_and_resolve_references()
  headless.labels = ()
  want = huggingface.from_huggingface(state, headless)
  for key, tree in want.items():
    jax.tree.map(np.testing.assert_array_equal, new['params'][key], tree)


def test_a_spanbert_is_a_bert():
  found = encoders.of(spanbert.get_config('test').model, 'config.init_from')
  assert found.model['family'] == 'bert' and 'boundary_width' not in found.model


@mutation(
  'encoders: any model will do',
  'bertjax/checkpoint/encoders.py',
  "if 'labels' not in found.model:",
  'if False:',
)
def test_a_kind_without_heads_is_refused():
  with pytest.raises(UserError, match="name='transformer_xl', which has no heads for labels"):
    encoders.of(transformer_xl.get_config('test').model, "config.init_from='runs/x'")


def test_a_pretraining_still_wants_its_own_kind(tmp_path):
  c = electra.get_config('test')
  c.init_from = save('BertForMaskedLM', tmp_path / 'hf')
  with pytest.raises(UserError, match="config.model.name='bert', the config has 'electra'"):
    init_from.adopt(c, tmp_path)
