"""Masked diffusion from a model of transformers and back, as a user types it."""

import json
import random

import finetune_runs
import pytest
import torch_models
from slow_imports import transformers

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
  'name, size', [('BertForMaskedLM', 'test'), ('ModernBertForMaskedLM', 'test_modernbert')]
)
def test_a_model_of_the_hub_learns_writes_and_stays_its_class(name, size, tmp_path):
  source, draw = tmp_path / 'source', random.Random(0)
  torch_models.save(name, source)
  pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *(f'w{n}' for n in range(5, 211))]
  (tmp_path / 'vocab.txt').write_text('\n'.join(pieces))
  transformers.BertTokenizerFast(str(tmp_path / 'vocab.txt')).save_pretrained(source)
  lines = [' '.join(draw.choices(pieces[5:], k=draw.randrange(5, 30))) for _ in range(400)]
  (tmp_path / 'text.txt').write_text('\n\n'.join(lines))

  run, keys = tmp_path / 'run', {'init_from': f'hf:{source}', 'evals.held_out.examples': 16}
  keys |= {'data.mask.predicted': 5} if name[:4] == 'Bert' else {}
  keys |= {'evals.bound.rows': 4, 'evals.pseudo_perplexity.rows': 1}
  text = tmp_path / 'text.txt'
  finetune_runs.pretrain(f'diffusion.py:{size}', run, text, '', {}, **keys)
  assert 4 < finetune_runs.last(run, 'eval/bound') < 8  # weights are random

  exported = finetune_runs.exported(run, tmp_path / 'exported')
  assert json.loads((exported / 'config.json').read_text())['architectures'] == [name]
  model = getattr(transformers, name).from_pretrained(exported)
  assert model.num_parameters() == torch_models.build(name).num_parameters()
  prompt = ('--text=w9 w10 w11', '--new_tokens=6', '--order=random', '--temperature=1')
  ours, theirs = (finetune_runs.use('generate', x, *prompt) for x in (run, exported))
  assert ours.stdout == theirs.stdout and ours.stdout.startswith('w9 w10 w11 '), ours.stderr
