"""A model lists its heads, and what commands can do with it follows from the list."""

import pathlib
import re

import jax
import pytest
import systems
import used_models
from flax.core import meta
from mutation import mutation
from tiers import in_tiers

import bertjax
from bertjax import registry
from bertjax.errors import UserError
from bertjax.models.layers import pad_id
from bertjax.sources import runs
from bertjax.use import nets
from bertjax.vocab.vocabulary import load_vocabulary

PAGE = pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'extending.md'
SPECIAL = dict(pad=0, unk=1, cls=2, sep=3, mask=4)


@mutation("return declared(self, word='head')", 'return declared(self)')
@pytest.mark.parametrize('name', in_tiers(systems.NAMES, systems.SAME))
def test_every_head_has_its_parameters(name):
  config = systems.tiny(name).model
  config.vocab_size = 1000
  if 'extra' in config:
    config.extra = tuple((table, rows or 3) for table, rows in config.extra)
  pad_id.fill(config, 0)
  net = nets.make(config, SPECIAL)
  tree = nets.shapes(net)['params']
  assert net.heads and {head.path for head in net.heads} <= {'', *tree}  # '': the word table
  assert {head.through for head in net.heads} <= {'', *tree}
  of_encoder = {'embeddings', 'encoder', 'layers', 'discriminator', 'word', 'table', 'final_norm'}
  of_encoder |= {'position', 'decoder', 'spelled', 'difference'}
  of_encoder |= {f'{x}coder_{y}' for x in ('en', 'de') for y in ('bias', 'norm', 'position')}
  layers = re.compile('(forwards|backwards|lstm)_[0-9]')
  rest = {key for key in tree if not (key in of_encoder or 'generator' in key or layers.match(key))}
  said = {head.path for head in net.heads} | {head.through for head in net.heads}
  assert rest - {'mask', 'uwz', 'u', 'w', 'z', 'distances'} <= said


@pytest.fixture
def own(tmp_path, monkeypatch):
  """A run with random parameters of the model of docs/extending.md."""
  (block,) = re.findall(r'```python\n# mine/bag.py\n(.*?)```', PAGE.read_text(), re.DOTALL)
  (tmp_path / 'own').mkdir()
  (tmp_path / 'own' / 'bag.py').write_text(block)
  (tmp_path / 'own' / 'empty.py').write_text('')
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(registry, '_ELSEWHERE', {})
  config = runs.recipe_of('quickstart')
  fields = dict(name='own.bag', family='none', size='small')
  config.model = dict(fields, vocab_size=211, width=16, positions=32, init_std=0.5)
  used_models.write_vocabulary(tmp_path / 'words', used_models.BERT)
  vocabulary = load_vocabulary(tmp_path / 'words')
  net = nets.make(config.model, vocabulary.special)
  batch = jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), nets.inputs(net))
  params = meta.unbox(jax.jit(net.model.init)(jax.random.key(0), batch))['params']
  (tmp_path / 'run').mkdir()
  runs.write_run(tmp_path / 'run', config, params, vocabulary, {})
  return tmp_path / 'run'


@mutation("  if 'embedded_BTD' in out:\n", '  if True:\n')
@mutation('    TRUSTED.difference_update(new)\n', '    pass\n')
def test_a_model_of_ones_own_is_used_by_its_contract(own):
  model = bertjax.Model.load(own, trust_code=['own.bag'])
  with pytest.raises(UserError, match='names the module'):
    bertjax.Model.load(own)
  assert len(model.fill(['w9 [MASK] w10'], top=3)[0][0]) == 3
  assert model.score(['w9 w10'])[0].tokens == 2
  assert model.embed(['w9 w8'], layer=1).shape == (1, 16) == model.embed(['w9']).shape
  with pytest.raises(UserError, match="'own.bag' does not return embedded_BTD"):
    model.embed(['w9'], layer=0)
  with pytest.raises(UserError, match='was not fine-tuned on labelled texts'):
    model.label(['w9'])
  with pytest.raises(UserError, match='has no discriminator'):
    model.replaced(['w9'])


@mutation('if export and not hasattr(module, export)', 'if False')
def test_a_module_that_exports_nothing_is_refused_by_name(own):
  del own
  with pytest.raises(UserError, match="config.model.name: expected a module with MODEL, got 'own."):
    registry.find('bertjax.models', 'own.empty', 'config.model.name')
