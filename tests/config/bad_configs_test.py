"""Configs that cannot work: each is refused by name before any work, in one sentence.

A row is (config, changes, what the message must say). A change is set as a config file would set
it, so types are not checked by ml_collections; ABSENT takes a key away.
"""

import importlib
import json
import math

import cases
import jax
import pytest
from ml_collections import ConfigDict
from mutation import mutation
from small_stores import write_store

from bertjax.checkpoint import resume
from bertjax.config import schema
from bertjax.errors import UserError
from bertjax.train import setup

ABSENT = type('Absent', (), {'__repr__': lambda self: 'ABSENT'})()  # named alike in every process
NAN, INF = math.nan, math.inf

XLNET_MASK = dict(
  name='xlnet_permutation', reuse_len=16, perm_size=16, context=6, max_words=5,
  static=False, max_targets=0,
)  # fmt: skip


TOP = [
  ('bert', {'seed': -1}, 'config.seed: expected int >= 0 and <= 4294967295, got -1'),
  ('bert', {'total_steps': 2**31}, 'config.total_steps: expected int >= 1 and <= 2147483647'),
  ('bert', {'objective.plus': -1.0}, 'config.objective.plus'),
  ('bert', {'evals.held_out.batch_size': 0}, 'config.evals.held_out.batch_size'),
  ('bert', {'optimizer.b1': 1.0}, 'config.optimizer.b1: expected float >= 0 and < 1'),
  ('bert', {'total_step': 10}, "did you mean 'total_steps'"),
  ('bert', {'batch_size': 9, 'microbatches': 2}, 'config.batch_size=9 must be a multiple'),
  ('bert', {'length': 4096}, 'asks for 1024 columns, and the model has room for 512: lower it'),
  ('bert', {'best.metric': 'eval/nothing'}, 'config.best.metric'),
  ('bert', {'best': 'eval/mlm'}, 'config.best: expected a dict of fields'),
  ('bert', {'mesh.data': 0}, 'mesh'),
  ('bert', {'sharding_rules': (('embed', 'tensr'),)}, "axes of 'embed'.* did you mean 'tensor'"),
  ('bert', {'sharding_rules': (('embd', 'fsdp'),)}, "logical axes: .* did you mean 'embed'"),
  ('bert', {'skip_steps': ((9, 4),)}, r'config.skip_steps: expected .first, last. in order'),
  ('bert', {'optimizer': ABSENT}, 'config.optimizer: expected a dict of fields'),
  ('bert', {'data': ABSENT}, 'config.data.plan lacks name'),
]
OPTIMIZER = [
  ('bert', {'phases.phase2.optimizer': dict(freeze=('x',))}, "'phase2': .*'x' matches none"),
  ('albert', {'optimizer.layer_decay': 0.9}, 'layer_decay=0.9 .*set it to 1.0'),
  ('bert', {'optimizer.schedule.warmup_steps': 10**9}, 'warmup_steps <= total_steps'),
]
MODEL = [
  ('bert', {'model.name': 'bertjax.main'}, "config.model.name: expected one of .*'bertjax.main'"),
  ('bert', {'model.extra': (('language', 2),)}, "has no column 'language'"),
  ('bert', {'model.labels': (('order', 2),)}, 'order'),
  ('bert', {'model.vocab_size': 40}, 'config.model.vocab_size=40'),
  ('transformer_xl', {'model.cutoffs': (90, 50)}, 'cutoffs'),
  ('spanbert', {'data.mask.max_pair_targets': 16}, '=16 is more than the 15 places in a span'),
  ('bert', {'objective': dict(name='plm')}, 'plm|objective'),
]
DATA = [
  ('bert', {'data.mask.random_share': 0.9}, 'at most 1 together'),
  ('bert', {'data.language_alpha': 0.7}, 'needs the language of every row'),
  ('bert', {'data.language_block': 4}, 'is read with language_alpha alone'),
  ('mbert', {'data.pack': 8}, 'expected config.data.pack=1'),
  ('bert', {'data.train_vocab.size': 299}, 'train_vocab.size: expected one of 0 or int >= 300'),
  ('bert', {'data.train_vocab.type': 'bpe'}, "size: expected int >= 300 with type='bpe', got 0"),
  ('bert', {'data.languages': ('de', 'fr')}, "has no column 'language'"),
  ('bert', {'data.mask.name': 'nowhere.at_all'}, 'expected a module that Python finds'),
  ('electra', {'data.mask.rate': 0.001}, 'leaves no slot'),
  ('spanbert', {'data.mask.entity_prob': 0.5}, 'has no units'),
  ('ernie:test_dialogues', {'data.mask.word_prob': 0.0}, "has no column 'role'"),
  ('xlm', {'phases.tlm.data.plan.lead': 'mask'}, 'lead: expected one of'),
  ('xlnet', {}, 'has no eod'),
  ('xlnet', {'data.mask': XLNET_MASK}, 'reuse_len must be the same in both'),
  ('transformer_xl', {'data.plan.ends': 'eoed'}, "config.data.plan.ends='eoed'"),
  ('transformer_xl', {'data.pack': 2}, 'expected pack=1'),
  ('bert', {'data.train': 'a.tsv'}, "train is not read with .*reader='store'.* it: labelled"),
  ('bert', {'data.examples': 5}, 'config.data.examples is not read .*expected 0, got 5'),
]
PHASES = [
  ('bert', {'phases.phase1.share': ABSENT}, 'config.phases.phase1 needs one of share, turns'),
  ('bert', {'phases.phase1.turns': 1}, 'config.phases.phase1 needs one of share, turns'),
  ('bert', {'phases.phase2': dict(turns=1)}, 'mixes share and turns'),
  ('bert', {'phases.phase1.share': 0.0}, 'config.phases.phase1.share'),
  ('xlm_e', {'phases.mrtd.seed': 1}, 'a step of several phases has one value'),
  ('bert', {'phases.phase1.lenght': 64}, "did you mean 'length'"),
  ('bert', {'phases.phase1.model': dict(ffn=128)}, 'phase .*shapes|other parameters'),
  ('bert', {'phases': dict(a=3)}, 'config.phases.a'),
  ('bert', {'phases.phase1.total_steps': 5}, 'total_steps'),
  ('bert', {'phases.phase1.data': dict(store='S')}, 'phase1.data.store: the whole run has one'),
  ('bert', {'total_steps': 1}, 'phases.phase2 gets no step of config.total_steps=1: raise that'),
  ('xlm', {'total_steps': 2}, 'phases.tlm gets no step of config.total_steps=2'),
  ('bert', {'temperature': 2.0}, 'config.temperature=2.0 is of phases that are drawn'),
]
EVALS = [
  ('bert', {'evals.held_out.type': ABSENT}, 'config.evals.held_out lacks type'),
  ('bert', {'evals.held_out.data': dict(maks=1)}, "did you mean 'mask'"),
  ('bert', {'evals.held_out.model': dict(ffn=32)}, 'changes the shapes of parameters'),
]
ROWS = [*TOP, *OPTIMIZER, *MODEL, *DATA, *PHASES, *EVALS]


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  """A plain store, without languages, roles, units or ends of documents, and a held-out one."""
  path = tmp_path_factory.mktemp('bad') / 'store'
  documents = [[[5 + (7 * i + j) % 200 for j in range(6)] for i in range(4)] for _ in range(40)]
  special = dict(pad=0, unk=1, cls=2, sep=3, mask=4)
  vocabulary = dict(type='wordpiece', size=cases.VOCAB, sha256='0' * 64, special=special)
  for folder in (path, path / 'heldout'):
    write_store(folder, documents, vocabulary)
  return path


def changed(name: str, changes) -> ConfigDict:
  """The config with these changes, as a file would make them."""
  name, _, size = name.partition(':')
  config = importlib.import_module(f'configs.{name}').get_config(size or 'test')
  config.batch_size, config.length = 8, 64
  if 'held_out' in config.evals:
    config.evals.held_out.batch_size = 8
  with config.ignore_type(), config.unlocked():
    for key, value in changes.items():
      *path, last = key.split('.')
      section = config
      for part in path:
        section = section[part]
      if value is ABSENT:
        del section[last]
      else:
        section[last] = ConfigDict(value) if isinstance(value, dict) else value
  return config


@pytest.mark.parametrize('name, changes, message', ROWS, ids=lambda v: str(v)[:60])
@mutation('if key not in read and', 'if key not in known and')
@mutation('for key in readers.of(data).of_run}', 'for key in ()}')
@mutation('Bounds(0, 2**32 - 1)', 'Bounds(0)')
@mutation('if not steps or end - steps >= self.total', 'if not steps')
@mutation(
  'for name, axes in config.sharding_rules:', 'for name, axes in config.sharding_rules[:0]:'
)
@mutation('LEAST_PIECES = 300 ', 'LEAST_PIECES = 1 ')
@mutation('not line.drawn:', 'False:')
@mutation('with timeline_lib.named(part):\n      parts[', 'if True:\n      parts[')
def test_what_cannot_work_is_refused_by_name(name, changes, message, store):
  config = changed(name, changes)
  with pytest.raises(UserError, match=message):
    schema.check(config)
    setup.make_run(config, str(store), jax.devices()[:1])


@mutation('if isinstance(value, ConfigDict):', 'if False:', file='bertjax/config/schema.py')
def test_what_was_stored_of_a_config_is_checked_as_it_was():
  config = changed('finetune.glue:mrpc', {})
  schema.check(config)
  text = json.dumps(config.copy_and_resolve_references().to_dict())
  schema.check(resume.as_config(json.loads(text)))
