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
from bertjax.config import defaults, schema
from bertjax.errors import UserError
from bertjax.train import setup

ABSENT = type('Absent', (), {'__repr__': lambda self: 'ABSENT'})()  # named alike in every process
NAN, INF = math.nan, math.inf

XLNET_MASK = dict(
  name='xlnet_permutation', reuse_len=16, perm_size=16, context=6, max_words=5, whole_word=False,
  static=False, max_targets=0,
)  # fmt: skip
WSD = dict(name='warmup_stable_decay', peak=1.0, warmup_steps=5, decay_steps=6, total_steps=10)
MUON = defaults.muon().to_dict() | dict(schedule=dict(name='constant', peak=1.0))

TOP = [
  ('bert', {'seed': -1}, 'config.seed: expected int >= 0 and <= 4294967295, got -1'),
  ('bert', {'seed': 1.5}, 'config.seed: expected int'),
  ('bert', {'seed': 2**32}, 'config.seed: .* <= 4294967295, got 4294967296'),
  ('bert', {'seed': 2**70}, 'config.seed: .* <= 4294967295'),
  ('bert', {'name': 7}, 'config.name: expected str'),
  ('bert', {'total_steps': 0}, 'config.total_steps: expected int >= 1, got 0'),
  ('bert', {'total_steps': -5}, 'config.total_steps'),
  ('bert', {'total_steps': 10.5}, 'config.total_steps'),
  ('bert', {'total_steps': '100'}, 'config.total_steps'),
  ('bert', {'total_steps': True}, 'config.total_steps'),
  ('bert', {'total_steps': None}, 'config.total_steps'),
  ('bert', {'total_step': 10}, "did you mean 'total_steps'"),
  ('bert', {'learning_rate': 1e-4}, 'fields of config: .* got .learning_rate'),
  ('bert', {'batch_size': 0}, 'config.batch_size: expected int >= 1'),
  ('bert', {'batch_size': -8}, 'config.batch_size'),
  ('bert', {'batch_size': 9, 'microbatches': 2}, 'config.batch_size=9 must be a multiple'),
  ('bert', {'length': 0}, 'config.length'),
  ('bert', {'length': 4096}, 'sequences of 1024 tokens, but the model has room'),
  ('bert', {'microbatches': 0}, 'config.microbatches: expected int >= 1'),
  ('bert', {'microbatches': -2}, 'config.microbatches'),
  ('bert', {'log_steps': 0}, 'config.log_steps'),
  ('bert', {'eval_steps': 0}, 'config.eval_steps'),
  ('bert', {'eval_steps': -1}, 'config.eval_steps'),
  ('bert', {'checkpoint_steps': 0}, 'config.checkpoint_steps'),
  ('bert', {'keep_checkpoints': 0}, 'config.keep_checkpoints: expected int >= 1'),
  ('bert', {'save_carry': 'yes'}, 'config.save_carry: expected bool'),
  ('bert', {'best.mode': 'lowest'}, "config.best.mode: expected one of 'min', 'max'"),
  ('bert', {'best.metric': 5}, 'config.best.metric: expected str'),
  ('bert', {'best.metric': 'eval/nothing'}, 'config.best.metric'),
  ('bert', {'best.metrics': 'eval/mlm'}, "did you mean 'metric'"),
  ('bert', {'best': 'eval/mlm'}, 'config.best: expected a dict of fields'),
  ('bert', {'mesh.data': 0}, 'mesh'),
  ('bert', {'mesh.fsdp': -2}, 'config.mesh.fsdp: expected int >= -1'),
  ('bert', {'mesh.tensor': 3}, 'does not fit 1 devices'),
  ('bert', {'mesh.model': 2}, 'fields of config.mesh'),
  ('bert', {'mesh.data': -1, 'mesh.fsdp': -1}, 'at most one mesh axis may be -1'),
  ('bert', {'sharding_rules': 'fsdp'}, 'config.sharding_rules'),
  ('bert', {'sharding_rules': (('batch', 'data'),)}, 'no sharding rule for axis'),
  (
    'bert',
    {'sharding_rules': (('embed', 'tensr'),)},
    "mesh axes of 'embed'.* did you mean 'tensor",
  ),
  ('bert', {'sharding_rules': (('embed', ('fsdp', 'slices')),)}, "of data, fsdp, .*'slices'"),
  ('bert', {'sharding_rules': (('embd', 'fsdp'),)}, "logical axes: .* did you mean 'embed'"),
  ('bert', {'init_from': 7}, 'config.init_from'),
  ('bert', {'init_from': (('runs/bert', 'params'),)}, 'config.init_from'),
  ('bert', {'fresh_layers': -1}, 'config.fresh_layers: expected int >= 0'),
  ('bert', {'profile.start': -1}, 'config.profile.start'),
  ('bert', {'profile.steps': -3}, 'config.profile.steps'),
  ('bert', {'skip_nonfinite': -1}, 'config.skip_nonfinite: expected int >= 0, got -1'),
  ('bert', {'spike': NAN}, 'config.spike: expected float >= 0'),
  ('bert', {'skip_steps': (0,)}, 'config.skip_steps: expected a tuple of int >= 1 or'),
  ('bert', {'skip_steps': ((9, 4),)}, r'config.skip_steps: expected .first, last. in order'),
  ('bert', {'profile.step': 3}, "did you mean 'steps'"),
  ('bert', {'optimizer': ABSENT}, 'config.optimizer: expected a dict of fields'),
  ('bert', {'model': ABSENT}, 'config.model: expected a dict of fields'),
  ('bert', {'objective': ABSENT}, 'config.objective: expected a dict of fields'),
  ('bert', {'data': ABSENT}, 'config.data.plan lacks name'),
]
OPTIMIZER = [
  ('bert', {'optimizer.name': 'adamm'}, "did you mean 'adamw'"),
  ('bert', {'optimizer.name': ABSENT}, 'config.optimizer lacks name'),
  ('bert', {'optimizer.beta1': 0.9}, 'fields of config.optimizer'),
  ('bert', {'optimizer.trust': 'all'}, 'trust was removed in 0.2'),
  ('bert', {'optimizer.b1': 1.0}, 'config.optimizer.b1: expected float >= 0 and < 1'),
  ('bert', {'optimizer.b2': 1.5}, 'config.optimizer.b2'),
  ('bert', {'optimizer.b2': NAN}, 'config.optimizer.b2: .* got nan'),
  ('bert', {'optimizer.eps': 0.0}, 'config.optimizer.eps: expected float > 0'),
  ('bert', {'optimizer.eps': -1e-8}, 'config.optimizer.eps'),
  ('bert', {'optimizer.eps': ABSENT}, 'config.optimizer .*lacks eps'),
  ('bert', {'optimizer.weight_decay': -0.1}, 'config.optimizer.weight_decay'),
  ('bert', {'optimizer.weight_decay': NAN}, 'config.optimizer.weight_decay'),
  ('bert', {'optimizer.clip': -1.0}, 'config.optimizer.clip'),
  ('bert', {'optimizer.clip': INF}, 'config.optimizer.clip'),
  ('bert', {'optimizer.bias_correction': 'no'}, 'config.optimizer.bias_correction'),
  ('bert', {'optimizer.eps_first': True}, 'eps_first is about the bias correction'),
  ('bert', {'optimizer.decay': (('norm', 0.0), ('.*', 1.0))}, "'norm' matches none"),
  ('bert', {'optimizer.decay': (('.*bias', 0.0),)}, "end it with a rule for '.*'"),
  ('bert', {'optimizer.decay': 'all'}, 'config.optimizer.decay'),
  ('bert', {'optimizer.freeze': ('embedings/.*',)}, 'embedings'),
  ('bert', {'optimizer.freeze': ('(',)}, 'is not a regular expression'),
  ('bert', {'optimizer.lr_scale': (('.*', -1.0),)}, 'config.optimizer.lr_scale'),
  ('bert', {'optimizer.lr_scale': (('.*', NAN),)}, 'config.optimizer.lr_scale'),
  ('bert', {'optimizer.layer_decay': 0.0}, 'config.optimizer.layer_decay: .* > 0 and <= 1'),
  ('albert', {'optimizer.layer_decay': 0.9}, 'layer_decay=0.9 .*set it to 1.0'),
  ('bert', {'optimizer.schedule': ABSENT}, 'config.optimizer'),
  ('bert', {'optimizer.schedule.name': 'linea'}, "did you mean 'linear'"),
  ('bert', {'optimizer.schedule.peak': -1e-4}, 'config.optimizer.schedule.peak'),
  ('bert', {'optimizer.schedule.peak': NAN}, 'config.optimizer.schedule.peak'),
  ('bert', {'optimizer.schedule.peak': '1e-4'}, 'config.optimizer.schedule.peak'),
  ('bert', {'optimizer.schedule.warmup_steps': -1}, 'config.optimizer.schedule.warmup_steps'),
  ('bert', {'optimizer.schedule.warmup_steps': 10**9}, 'warmup_steps <= total_steps'),
  ('bert', {'optimizer.schedule.warmup': 5}, 'fields of config.optimizer.schedule'),
  (
    'bert',
    {'optimizer.schedule.total_steps': 0},
    'config.optimizer.schedule.total_steps: expected int',
  ),
  ('bert', {'optimizer.schedule.end_ratio': 0.1}, 'fields of config.optimizer.schedule'),
  ('bert', {'optimizer.schedule.start': -3}, 'config.optimizer.schedule.start'),
  ('xlnet', {'optimizer.schedule.end_ratio': 2.0}, 'config.optimizer.schedule.end_ratio'),
  ('bert', {'optimizer.schedule': WSD}, 'expected warmup_steps . decay_steps <= total_steps'),
  ('bert', {'optimizer.name': 'stable_adamw'}, "fields of config.optimizer: .* 'bias_correction'"),
  (
    'bert',
    {'optimizer': MUON | dict(matrices=(('.*', 1.0),))},
    'matrices takes .*a matrix',
  ),
  ('bert', {'optimizer': MUON | dict(newton_schulz_steps=0)}, 'newton_schulz_steps: expected int'),
  ('bert_lamb', {'optimizer.eps': ABSENT}, 'lacks eps'),
]
MODEL = [
  ('bert', {'model.name': 'brt'}, "did you mean 'bert'"),
  ('bert', {'model.name': ABSENT}, 'config.model lacks name'),
  ('bert', {'model.hidden': 64}, 'fields of config.model'),
  ('bert', {'model.mem_len': 64}, 'fields of config.model'),
  ('bert', {'model.layers': 0}, 'config.model.layers: expected int >= 1'),
  ('bert', {'model.layers': 2.0}, 'config.model.layers'),
  ('bert', {'model.width': 0}, 'config.model.width'),
  ('bert', {'model.heads': 7}, 'must be a multiple of'),
  ('bert', {'model.heads': 0}, 'config.model.heads'),
  ('bert', {'model.ffn': -1}, 'config.model.ffn'),
  ('bert', {'model.embedding_width': -1}, 'config.model.embedding_width'),
  ('bert', {'model.positions': 0}, 'config.model.positions|model has room'),
  ('bert', {'model.position_offset': 600}, 'model has room'),
  ('bert', {'model.position_offset': -2}, 'config.model.position_offset'),
  ('bert', {'model.types': -1}, 'config.model.types'),
  ('bert', {'model.types': ABSENT}, 'lacks types'),
  ('bert', {'model.extra': 'language'}, 'config.model.extra'),
  ('bert', {'model.extra': (('language', 2),)}, "has no column 'language'"),
  ('bert', {'model.labels': (('next', 'two'),)}, 'config.model.labels'),
  ('bert', {'model.labels': (('order', 2),)}, 'order'),
  ('bert', {'model.norm_eps': 0.0}, 'config.model.norm_eps'),
  ('bert', {'model.activation': 'gelu'}, "config.model.activation: expected one of 'gelu_tanh'"),
  ('bert', {'model.initializer': 'xavier'}, 'config.model.initializer'),
  ('bert', {'model.init_std': -0.02}, 'config.model.init_std'),
  ('bert', {'model.init_std': NAN}, 'config.model.init_std'),
  ('bert', {'model.attend': 'none'}, 'config.model.attend'),
  ('bert', {'model.sharing': 'some'}, 'config.model.sharing'),
  ('bert', {'model.groups': 0}, 'config.model.groups'),
  ('bert', {'model.dropout': 1.0}, 'config.model.dropout: expected float >= 0 and < 1'),
  ('bert', {'model.dropout': -0.1}, 'config.model.dropout'),
  ('bert', {'model.dropout': NAN}, 'config.model.dropout'),
  ('bert', {'model.attention_dropout': 2.0}, 'config.model.attention_dropout'),
  ('bert', {'model.dtype': 'float16'}, 'config.model.dtype'),
  ('bert', {'model.remat': 'no'}, 'config.model.remat'),
  ('bert', {'model.vocab_size': 40}, 'config.model.vocab_size=40'),
  ('bert', {'model.vocab_size': -1}, 'config.model.vocab_size'),
  ('bert', {'model.zero_row': 'pad'}, 'config.model.zero_row'),
  ('albert', {'model.groups': 3}, 'config.model.groups must be from 1 to layers=2'),
  ('electra', {'model.generator': 'mine'}, 'config.model.generator'),
  ('electra', {'model.generator_width': 0.0}, 'config.model.generator_width'),
  ('transformer_xl', {'model.mem_len': -1}, 'config.model.mem_len'),
  ('transformer_xl', {'model.cutoffs': (90, 50)}, 'cutoffs'),
  ('transformer_xl', {'model.attention': 'rel'}, 'config.model.attention'),
  ('xlnet', {'model.clamp_len': -1}, 'config.model.clamp_len'),
  ('spanbert', {'model.boundary_positions': 3}, 'max_pair_targets=15 is more than the 3 places'),
]
OBJECTIVE = [
  ('bert', {'objective.name': 'mml'}, "did you mean 'mlm'"),
  ('bert', {'objective.plus': -1.0}, 'config.objective.plus'),
  ('bert', {'objective.generator_weight': 1.0}, 'fields of config.objective'),
  ('bert', {'objective.plus': ABSENT}, 'lacks plus'),
  ('bert', {'objective': dict(name='plm')}, 'plm|objective'),
  ('electra', {'objective.temperature': 0.0}, 'config.objective.temperature'),
  ('electra', {'objective.train': 'all'}, 'config.objective.train'),
  ('electra', {'objective.electric': True}, 'config.objective.electric needs'),
  ('electra', {'objective.copy_generator': True}, 'config.objective.copy_generator needs'),
  ('electra', {'objective.discriminator_weight': -1.0}, 'config.objective.discriminator_weight'),
  (
    'electra',
    {'objective.train': 'generator', 'model.generator': 'uniform'},
    "train='generator'",
  ),
  ('transformer_xl', {'objective.unit': 'words'}, 'config.objective.unit'),
  ('spanbert', {'objective.boundary_scale': -1.0}, 'config.objective.boundary_scale'),
]
DATA = [
  ('bert', {'data.plan': 'pairs'}, 'config.data.plan'),
  ('bert', {'data.plan': dict(dupe_factor=10)}, 'config.data.plan lacks name'),
  ('bert', {'data.plan.name': 'pair'}, "did you mean 'pairs'"),
  ('bert', {'data.plan.name': 'blocks'}, 'fields of config.data.plan'),
  ('bert', {'data.plan.dupe_factor': 0}, 'config.data.plan.*dupe_factor'),
  ('bert', {'data.plan.dupe_factor': ABSENT}, 'lacks dupe_factor'),
  ('bert', {'data.plan.short_prob': 2.0}, 'short_prob: expected float'),
  ('bert', {'data.plan.halves': True}, 'fields of config.data.plan'),
  ('bert', {'data.corrupt': 'mlm'}, 'fields of config.data'),
  ('bert', {'data.lanes': 8}, 'fields of config.data'),
  ('bert', {'data.mask.name': 'brt'}, "did you mean 'bert'"),
  ('bert', {'data.mask.rate': 0.0}, 'rate: expected float > 0'),
  ('bert', {'data.mask.rate': 1.5}, 'rate: expected float > 0'),
  ('bert', {'data.mask.rate': NAN}, 'rate: expected float > 0'),
  ('bert', {'data.mask.mask_share': 1.2}, 'mask_share: expected float'),
  ('bert', {'data.mask.random_share': 0.9}, 'at most 1 together'),
  ('bert', {'data.mask.max_targets': -1}, 'max_targets'),
  ('bert', {'data.mask.never_drawn': ('end',)}, 'config.data.mask.never_drawn'),
  ('bert', {'data.mask.static': 'yes'}, 'static: expected bool'),
  ('bert', {'data.mask.rule': 'albert'}, 'rule: expected one of'),
  ('bert', {'data.mask.whole_word': 1}, 'whole_word: expected bool'),
  ('bert', {'data.mask.ngram': 3}, 'fields of config.data.mask'),
  ('bert', {'data.pack': 0}, 'config.data.pack: expected int >= 1'),
  ('bert', {'data.pack': True}, 'config.data.pack'),
  ('bert', {'data.language_alpha': -1.0}, 'config.data.language_alpha'),
  ('bert', {'data.language_alpha': 0.7}, 'needs the language of every row'),
  ('bert', {'data.language_block': 4}, 'is read with language_alpha alone'),
  ('mbert', {'data.pack': 8}, 'expected config.data.pack=1'),
  ('bert', {'data.reader': 'tfds'}, 'config.data.reader'),
  ('bert', {'data.split': 'words'}, 'config.data.split'),
  ('bert', {'data.errors': 'ignore'}, 'config.data.errors'),
  ('bert', {'data.documents': -1}, 'config.data.documents'),
  ('bert', {'data.columns': ('speaker',)}, 'config.data.columns'),
  ('bert', {'data.holdout': 0.9}, 'config.data.holdout'),
  ('bert', {'data.workers': -1}, 'config.data.workers'),
  ('bert', {'data.threads': -1}, 'config.data.threads'),
  ('bert', {'data.lowercase': 'no'}, 'config.data.lowercase'),
  ('bert', {'data.train_vocab.type': 'word'}, 'config.data.train_vocab.type'),
  ('bert', {'data.train_vocab.size': -1}, 'config.data.train_vocab.size'),
  ('bert', {'data.train_vocab.size': 299}, 'train_vocab.size: expected one of 0 or int >= 300'),
  ('bert', {'data.train_vocab.type': 'bpe'}, "size: expected int >= 300 with type='bpe', got 0"),
  ('bert', {'data.vocabulary': 'vocab.txt'}, "did you mean 'vocab'"),
  ('bert', {'data.languages': ('de', 'fr')}, "has no column 'language'"),
  ('bert', {'data.mask.name': 'nowhere.at_all'}, 'expected a module that Python finds'),
  ('roberta', {'data.plan.break_mode': 'doc'}, 'break_mode: expected one of'),
  ('albert', {'data.mask.ngram': 0}, 'ngram: expected int >= 1'),
  ('albert', {'data.plan.random_b': 'x'}, 'random_b: expected bool'),
  ('electra', {'data.mask.random_share': 0.1}, 'fields of config.data.mask'),
  ('electra', {'data.plan.one_segment_prob': -0.1}, 'one_segment_prob'),
  ('electra', {'data.mask.rate': 0.001}, 'leaves no slot'),
  ('spanbert', {'data.mask.geometric_p': 1.0}, 'geometric_p'),
  ('spanbert', {'data.mask.max_words': 0}, 'max_words'),
  ('spanbert', {'data.mask.entity_prob': 1.0}, 'entity_prob'),
  ('spanbert', {'data.mask.entity_prob': 0.5}, 'has no units'),
  ('spanbert', {'data.mask.max_pair_targets': 0}, 'max_pair_targets'),
  ('ernie', {}, 'has no units'),
  ('ernie', {'data.mask.word_prob': 2.0}, 'word_prob'),
  ('ernie', {'data.mask.block': 0}, 'block: expected int >= 1'),
  ('ernie', {'data.mask.rule': 'units'}, 'fields of config.data.mask'),
  ('ernie:test_dialogues', {'data.mask.word_prob': 0.0}, "has no column 'role'"),
  ('ernie:test_dialogues', {'data.plan.turns': 1}, 'turns: expected int >= 2'),
  ('xlm', {}, "has no column 'language'"),
  ('xlm', {'data.mask.alpha': 0.5}, 'alpha was removed in 0.2'),
  ('xlm', {'phases.tlm.data.plan.lead': 'mask'}, 'lead: expected one of'),
  ('xlnet', {}, 'has no eod'),
  ('xlnet', {'data.mask': XLNET_MASK}, 'reuse_len must be the same in both'),
  ('xlnet', {'data.mask.context': 0}, 'context'),
  ('xlnet', {'data.mask': dict(name='causal')}, 'plm|order|has no eod'),
  ('bert', {'data.mask': dict(name='xlnet_permutation')}, 'lacks'),
  ('transformer_xl', {'data.plan.ends': 'eoed'}, "config.data.plan.ends='eoed'"),
  ('transformer_xl', {'data.pack': 2}, 'expected pack=1'),
  ('transformer_xl', {'data.language_alpha': 0.5}, 'language_alpha=None'),
  ('bert', {'data.train': 'a.tsv'}, "train is not read with .*reader='store'.* it: labelled"),
  ('bert', {'data.dev': 'a.tsv'}, 'config.data.dev is not read'),
  ('bert', {'data.examples': 5}, 'config.data.examples is not read .*expected 0, got 5'),
  ('bert', {'data.length_block': 1}, 'config.data.length_block is not read'),
  ('bert', {'data.reader': 'seqio', 'data.store': 'S'}, 'store is not read .* it: store'),
  ('finetune.glue:mrpc', {'data.store': 'S'}, "store is not read with .*'labelled'.* it: store"),
  ('finetune.glue:mrpc', {'data.input': 'a.txt'}, 'data.input is not read .* it: seqio, store'),
  ('finetune.glue:mrpc', {'data.pack': 2}, 'config.data.pack is not read'),
  ('finetune.glue:mrpc', {'data.train_vocab': dict(type='bpe', size=500)}, 'train_vocab is not'),
]
PHASES = [
  ('bert', {'phases.phase1.share': ABSENT}, 'config.phases.phase1 needs one of share, turns'),
  ('bert', {'phases.phase1.turns': 2}, 'config.phases.phase1 needs one of share, turns'),
  ('bert', {'phases.phase2': dict(turns=1)}, 'mixes share and turns'),
  ('bert', {'phases.phase1.share': 0.0}, 'config.phases.phase1.share'),
  ('bert', {'phases.phase1.share': -1.0}, 'config.phases.phase1.share'),
  ('bert', {'phases.phase1.share': NAN}, 'config.phases.phase1.share'),
  ('bert', {'phases.phase1.share': 'half'}, 'config.phases.phase1.share'),
  ('xlm', {'phases.mlm.turns': 0}, 'config.phases.mlm.turns'),
  ('xlm_e', {'phases.mrtd.summed': 0.0}, 'config.phases.mrtd.summed'),
  ('xlm_e', {'phases.mrtd.seed': 1}, 'a step of several phases has one value'),
  ('xlm', {'phases.mlm.turns': 1.5}, 'config.phases.mlm.turns'),
  ('bert', {'phases.phase1.lenght': 64}, "did you mean 'length'"),
  ('bert', {'phases.phase1.model': dict(widht=64)}, "did you mean 'width'"),
  ('bert', {'phases.phase1.model': dict(dropout=1.5)}, "in phase 'phase1': config.model.dropout"),
  ('bert', {'phases.phase1.batch_size': 0}, "in phase 'phase1': config.batch_size"),
  ('bert', {'phases.phase1.model': dict(ffn=128)}, 'phase .*shapes|other parameters'),
  ('bert', {'phases.phase1.seed': -3}, "in phase 'phase1': config.seed"),
  ('bert', {'phases': dict(a=3)}, 'config.phases.a'),
  ('bert', {'phases.phase1.total_steps': 5}, 'total_steps'),
  ('bert', {'phases.phase1.data': dict(store='S')}, 'phase1.data.store: the whole run has one'),
  ('bert', {'phases.phase1.data': dict(input='a.txt')}, 'set config.data.input, or leave it out'),
  ('bert', {'phases.phase1.data': dict(mixture='m')}, 'config.phases.phase1.data.mixture'),
  ('bert', {'phases.phase1.data': dict(vocab='v')}, 'config.phases.phase1.data.vocab'),
  ('bert', {'phases.phase1.data': dict(holdout=0.1)}, 'config.phases.phase1.data.holdout'),
  ('bert', {'phases.phase1.data': dict(train_vocab=dict(size=500))}, 'phase1.data.train_vocab'),
  ('bert', {'phases.phase1.data': dict(train='a.tsv')}, 'config.data.train is not read'),
  ('bert', {'phases.phase1.trackers': ('wandb',)}, 'config.phases.phase1.trackers: the whole run'),
  ('bert', {'phases.phase1.preset': 'gpu'}, 'config.phases.phase1.preset: the whole run'),
  ('xlm_e', {'phases.mrtd.preset': 'gpu'}, 'config.phases.mrtd.preset: the whole run'),
  ('bert', {'phases.phase1.remap_vocab': True}, 'config.phases.phase1.remap_vocab'),
  ('bert', {'total_steps': 1}, 'phases.phase2 gets no step of config.total_steps=1: raise that'),
  ('bert', {'total_steps': 3}, 'phases.phase2 gets no step of config.total_steps=3: raise that'),
  ('xlm', {'total_steps': 2}, 'phases.tlm gets no step of config.total_steps=2'),
  ('bert', {'temperature': 2.0}, 'config.temperature=2.0 is of phases that are drawn'),
  ('bert', {'temperature': 2.0, 'phases': {}}, 'this config has none: remove it'),
]
EVALS = [
  ('bert', {'eval': dict(examples=5)}, "did you mean 'evals'"),
  ('bert', {'evals.held_out.type': 'los'}, "did you mean 'loss'"),
  ('bert', {'evals.held_out.type': ABSENT}, 'config.evals.held_out lacks type'),
  ('bert', {'evals.held_out.examples': -1}, 'config.evals.held_out.examples'),
  ('bert', {'evals.held_out.example': 1}, "did you mean 'examples'"),
  ('bert', {'evals.held_out.batch_size': 0}, 'config.evals.held_out.batch_size'),
  ('bert', {'evals.held_out.seed': -1}, 'config.evals.held_out.seed'),
  ('bert', {'evals.held_out.seed': 2**64}, 'config.evals.held_out.seed'),
  ('bert', {'evals.held_out.length': 5000}, 'sequences of 5000 tokens'),
  ('bert', {'evals.held_out.every': -1}, 'config.evals.held_out.every: expected int >= 0'),
  ('bert', {'evals.held_out.data': dict(maks=1)}, "did you mean 'mask'"),
  ('bert', {'evals.held_out.model': dict(dropuot=0.1)}, "did you mean 'dropout'"),
  ('bert', {'evals.held_out.model': dict(ffn=32)}, 'changes the shapes of parameters'),
  (
    'bert',
    {'evals.fill_mask': dict(type='fill_mask', sentences='a [MASK]')},
    'config.evals.fill_mask.sentences',
  ),
  ('bert', {'evals.pseudo_perplexity.rows': -1}, 'config.evals.pseudo_perplexity.rows'),
  ('transformer_xl', {'evals.held_out.model': dict(mem_lenn=3)}, "did you mean 'mem_len'"),
]
ROWS = [*TOP, *OPTIMIZER, *MODEL, *OBJECTIVE, *DATA, *PHASES, *EVALS]


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
@mutation(
  'if key not in read and',
  'if key not in known and',
  case="bert-{'data.dev': 'a.tsv'}-config.data.dev is not read",
)
@mutation(
  'for key in readers.of(data).of_run}',
  'for key in ()}',
  case="bert-{'phases.phase1.data': {'store': 'S'}}-phase1.data.store: the whole run has one",
)
@mutation(
  'Bounds(0, 2**32 - 1)',
  'Bounds(0)',
  case="bert-{'evals.held_out.seed': 18446744073709551616}-config.evals.held_out.seed",
)
@mutation(
  'if not steps or end - steps >= self.total',
  'if not steps',
  case="xlm-{'total_steps': 2}-phases.tlm gets no step of config.total_steps=2",
)
@mutation(
  'for name, axes in rules:',
  'for name, axes in rules[:0]:',
  case="bert-{'sharding_rules': (('embed', ('fsdp', 'slices')),)}-of data, fsdp, .*'slices'",
)
@mutation(
  'LEAST_PIECES = 300 ',
  'LEAST_PIECES = 1 ',
  case="bert-{'data.train_vocab.size': 299}-train_vocab.size: expected one of 0 or int >= 300",
)
@mutation(
  'not line.drawn:',
  'False:',
  case="bert-{'temperature': 2.0}-config.temperature=2.0 is of phases that are drawn",
)
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


def test_there_are_enough_of_them():
  assert len(ROWS) >= 150 and len({(n, str(c)) for n, c, _ in ROWS}) == len(ROWS)
