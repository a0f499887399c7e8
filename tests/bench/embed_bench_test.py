"""The embedding bench times both sides on the same texts and says how far they are apart."""

import json
import subprocess
import sys

import pytest
import torch_models


@pytest.mark.full
def test_both_sides_give_the_same_vectors(tmp_path):
  torch_models.save('BertModel', tmp_path / 'model')
  names = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *(f'w{i}' for i in range(206))]
  (tmp_path / 'model' / 'vocab.txt').write_text('\n'.join(names) + '\n')
  lines = [' '.join(f'w{(7 * i + j) % 206}' for j in range(1 + i % 30)) for i in range(40)]
  (tmp_path / 'texts.txt').write_text('\n'.join(lines) + '\n')
  command = f'bertjax.bench embed --model={tmp_path}/model --texts={tmp_path}/texts.txt --calls=1'
  done = subprocess.run(
    [sys.executable, '-m', *command.split(), '--against=transformers'],
    capture_output=True, text=True, check=True,
  )  # fmt: skip
  result = json.loads(done.stdout)
  assert result['difference'] < 2e-5 and result['ratio'] > 0
