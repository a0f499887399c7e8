"""Texts that models write behind prompts of several lengths, and what cannot be written."""

import pytest
import used_models
from mutation import mutation
from used_models import STREAM, XLNET

from bertjax.errors import UserError
from bertjax.models.layers.decoding import Beams, Sampling
from bertjax.use import generate
from bertjax.vocab.vocabulary import load_vocabulary

PROMPTS = ['w9 w10 w11 w12 w13 w14 w15 w16 w17', 'w20', '', 'w30 w31 w32']
HOWS: list[dict] = [{}, dict(sampling=Sampling(1.0, 50)), dict(beams=Beams(2))]
FIELDS: dict[str, dict] = dict(
  gpt=dict(positions=64), xlm=dict(attend='causal', extra=(('language', 3),), zero_row=None)
)
FIELDS['xlm, a phase'] = FIELDS['xlm'] | dict(attend='example')  # its phase clm is causal


@pytest.fixture(scope='module')
def load(tmp_path_factory):
  """Name of a recipe -> its model, made once."""
  known = {}

  def get(recipe):
    if recipe not in known:
      path, fields = tmp_path_factory.mktemp(recipe), FIELDS.get(recipe, {})
      name = recipe.partition(',')[0]
      first = STREAM if name == 'transformer_xl' else XLNET
      made = used_models.make(path, name, first=first, **fields)
      language = 1 if name == 'xlm' else None
      known[recipe] = used_models.load(made.workdir, language=language)
    return known[recipe]

  return get


@mutation('row_B = (index_B + first - 1)', 'row_B = (index_B)')
@pytest.mark.parametrize(
  'recipe, how',
  [
    ('gpt', HOWS[1]),
    ('gpt', HOWS[2]),
    ('t5', HOWS[2]),
    pytest.param('gpt', HOWS[0], marks=pytest.mark.full),
    *(
      pytest.param(recipe, how, marks=pytest.mark.full)
      for recipe in ('xlm', 'bart', 'transformer_xl')
      for how in HOWS
    ),
  ],
)
def test_a_text_is_what_its_prompt_gives_alone(load, recipe, how):
  model = load(recipe)
  found = model.generate(PROMPTS, 4, **how)
  assert len(found) == len(PROMPTS) and all(len(text.tokens) <= 4 for text in found)
  for number in (1, 3):  # the longest, and none
    (alone,) = model.generate([PROMPTS[number - 1]], 4, first=number, **how)
    assert found[number - 1].tokens == alone.tokens
    assert found[number - 1].score == pytest.approx(alone.score, abs=1e-4)
  assert model.generate([]) == []


@pytest.mark.parametrize('how', [HOWS[1], pytest.param(HOWS[2], marks=pytest.mark.full)])
def test_a_mesh_writes_the_same(load, how):
  model = load('gpt')
  eight = used_models.load(model.source, mesh=dict(data=2, fsdp=2, tensor=2))
  one, other = ([text.tokens for text in m.generate(PROMPTS, 4, **how)] for m in (model, eight))
  assert one == other


@mutation('isinstance(model.net.writer, PairModel) else rows[index]', 'True else rows[index]')
def test_a_text_begins_with_the_space_behind_its_prompt(load):
  for prompt, text in zip(PROMPTS, load('gpt').generate(PROMPTS, 4), strict=True):
    assert (prompt + text.text).split() == [
      *prompt.split(),
      *(w for w in text.tokens if w[0] == 'w'),
    ]
    assert text.text[:1] == (' ' if prompt else text.tokens[0][:1])


@mutation('[i for i in prompt if i != end]', 'list(prompt)')
def test_the_end_that_an_empty_prompt_is_read_as_is_none_of_its_text(tmp_path):
  used_models.write_vocabulary(tmp_path / 'words', STREAM)
  vocabulary, end = load_vocabulary(tmp_path / 'words'), 8
  for prompt, text in (([7], ' w5 w6'), ([end], 'w5 w6')):
    assert generate.text(vocabulary, prompt, [5, 6, end, 9], end, 0.0).text == text


@mutation('and not (model.task or model.tasks)', '')
@mutation("special['mask'] is not None:\n    blank", "special['mask'] is None:\n    blank")
def test_a_model_that_learned_from_masks_is_shown_those_of_a_text(load, monkeypatch):
  model = load('bart')
  mask = model.vocabulary.special['mask']
  spelled = ['w9 [MASK] w11', f'w9 {model.vocabulary.pieces[mask]} w11']
  for row in generate._rows(model, spelled, 4, 1):
    assert row.tolist().count(mask) == 1
  monkeypatch.setattr(model, 'task', dict(name='write'))  # whose examples are read as they are
  assert mask not in generate._rows(model, spelled, 4, 1)[0]


@mutation('if np.isnan(score):', 'if score == np.nan:')
def test_a_text_of_a_model_that_answers_nan_is_refused(load):
  with pytest.raises(UserError, match='the model answers NaN'):
    generate.text(load('gpt').vocabulary, (), [9], None, float('nan'))


@mutation('if line.side_by_side else ()', 'if False else ()')
def test_a_run_writes_by_its_causal_phase(load):
  causal, phases = (load(name).generate(PROMPTS, 4) for name in ('xlm', 'xlm, a phase'))
  assert causal == phases
  both_sides = load('xlm, a phase').embed(PROMPTS[:1])
  assert abs(load('xlm').embed(PROMPTS[:1]) - both_sides).max() > 1e-3


def test_what_cannot_be_written_is_refused(load):
  gpt = load('gpt')
  for changes, message in (
    (dict(seed=1 << 31), 'seed: expected from 0'),
    (dict(sampling=Sampling(float('nan'))), 'expected temperature >= 0'),
    (dict(sampling=Sampling(1.0), beams=Beams(2)), 'one of sampling and beams, got both'),
    (dict(new_tokens=64), 'prompt 2 has 1 token and 64 more.*takes 64 in all'),
  ):
    with pytest.raises(UserError, match=message):
      gpt.generate(['w9'], **dict(first=2) | changes)
