"""The bench of texts that are written times both sides on the same prompts."""

import numpy as np
import pytest
import systems
from mutation import mutation

from bertjax.errors import UserError
from bertjax.tools.bench import generate
from bertjax.tools.bench.parts import own_step


@mutation('.eval().to(getattr(torch, model.dtype))', '.eval()')
@mutation("how = Beams(count) if kind == 'beams' else Sampling()", 'how = Sampling()')
def test_both_sides_read_the_prompts_and_write_all_tokens():
  fields = {'model.vocab_size': 99, 'model.dtype': 'bfloat16'}
  model = own_step.sized(systems.tiny('gpt', **fields), 2, 8).model
  prompt_BT = np.random.default_rng(0).integers(5, 99, (2, 8)).astype(np.int32)
  for kind, shape in dict(greedy=(2, 1, 3), beams=(2, 2, 3)).items():
    assert generate.make(model, prompt_BT, 3, 2, kind)().token_BKN.shape == shape
    assert generate.make_rival(model, prompt_BT, 3, 2, kind)().shape == (2, 11)
  theirs = generate.make_rival(model, prompt_BT, 3, 2, 'prefill')().logits
  assert theirs.shape == (2, 1, 99) and str(theirs.dtype) == 'torch.bfloat16'
  with pytest.raises(UserError, match="config.model.name='bert' writes no text"):
    generate.make(systems.tiny('bert').model, prompt_BT, 3, 2, 'greedy')


@pytest.mark.full
@pytest.mark.parametrize('name', ['t5', 'xlm'])
def test_prompts_are_read_at_once(name):
  fields = {'model.vocab_size': 99} | ({'model.attend': 'causal'} if name == 'xlm' else {})
  model = own_step.sized(systems.tiny(name, **fields), 2, 8).model
  prompt_BT = np.full((2, 8), 5, np.int32)
  assert generate.make(model, prompt_BT, 3, 2, 'prefill')()[0].shape[0] == 2
