"""ELMo and AWD-LSTM of torch.nn.LSTM, for `rivals`."""

import itertools
import types
from typing import Any

import torch


class Cells(torch.nn.Module):
  """A layer of torch.nn.LSTM with projections and clips, as a loop over cells."""

  def __init__(self, width: int, cell: int, clips: tuple[float, float]):
    super().__init__()
    self.gates = torch.nn.Linear(2 * width, 4 * cell)
    self.project = torch.nn.Linear(cell, width, bias=False)
    self.sizes, self.clips = (cell, width), [clip or float('inf') for clip in clips]

  def forward(self, x: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
    """Returns what each column gives, [B, T, width], and the state behind the last one."""
    c, h = state or [x.new_zeros(len(x), size) for size in self.sizes]
    of_cell, of_output = self.clips
    found = []
    for column in x.unbind(1):
      write, new, keep, read = self.gates(torch.cat([column, h], 1)).chunk(4, 1)
      c = (keep + 1).sigmoid() * c + write.sigmoid() * new.tanh()
      c = c.clamp(-of_cell, of_cell)
      h = self.project(read.sigmoid() * c.tanh()).clamp(-of_output, of_output)
      found.append(h)
    return torch.stack(found, 1), (c, h)


class ELMo(torch.nn.Module):
  """ELMo of a loop over cells, or without clips of torch.nn.LSTM, which has none; its softmax has
  some words that are drawn alike; filters are of F.conv1d."""

  def __init__(self, config: Any):
    super().__init__()
    m, nn = config.model, torch.nn
    self.length, self.rate, self.sampled = config.length, m.dropout, config.objective.sampled
    self.letters = nn.Embedding(262, m.character_width) if m.characters else None
    if m.characters:
      size = sum(count for _, count in m.filters)
      conv = lambda length, count: nn.Conv1d(m.character_width, count, length)
      self.filters = nn.ModuleList([conv(*each) for each in m.filters])
      self.highways = nn.ModuleList([nn.Linear(size, 2 * size) for _ in range(m.highways)])
      self.words = nn.Linear(size, m.width)
    else:
      self.words = nn.Embedding(m.vocab_size, m.width)
    clips = m.cell_clip, m.projection_clip
    plain = lambda: nn.LSTM(m.width, m.cell, proj_size=m.width, batch_first=True)
    layer = (lambda: Cells(m.width, m.cell, clips)) if any(clips) else plain
    self.layers = nn.ModuleList([layer() for _ in range(2 * m.layers)])
    self.softmax = nn.Embedding(m.outputs or m.vocab_size, m.width)
    self.bias = nn.Parameter(torch.zeros(len(self.softmax.weight)))
    self.states: list[Any] = [None] * len(self.layers)

  def _read(self, x: torch.Tensor) -> torch.Tensor:
    if self.letters is None:
      return self.words(x)
    letters = self.letters(x.flatten(0, 1)).transpose(1, 2)
    y = torch.cat([f(letters).amax(2).relu() for f in self.filters], 1)
    for highway in self.highways:
      carry, changed = highway(y).chunk(2, 1)
      y = torch.lerp(y, changed.relu(), carry.sigmoid())
    return self.words(y).unflatten(0, x.shape[:2])

  def forward(self, **texts: torch.Tensor) -> Any:
    """Returns an output with `loss`, as the classes do."""
    drop, loss = torch.nn.functional.dropout, 0.0
    for way in (0, 1):
      x, target = self._read(texts[f'read_{way}']), texts[f'target_{way}'].flatten()
      for number in range(len(self.layers) // 2):
        place = way * len(self.layers) // 2 + number
        dropped = drop(x, self.rate)
        y, state = self.layers[place](dropped, self.states[place])
        self.states[place] = tuple(s.detach() for s in state)
        x = y + dropped if number else y
      h = drop(x, self.rate).flatten(0, 1)
      logits = h @ self.softmax.weight.T + self.bias if not self.sampled else None
      if logits is None:
        drawn = torch.randint(len(self.bias), (self.sampled,))
        own = (h * self.softmax(target)).sum(1, keepdim=True) + self.bias[target, None]
        logits = torch.cat([own, h @ self.softmax(drawn).T + self.bias[drawn]], 1)
        target = torch.zeros_like(target)
      loss = loss + torch.nn.functional.cross_entropy(logits, target) / 2
    return types.SimpleNamespace(loss=self.length * loss)


class AWDLSTM(torch.nn.Module):
  """AWD-LSTM of torch.nn.LSTM, without its penalties. Units are dropped in each column anew; the
  kernels of the states, where they are, once a step for all rows, as fastai's WeightDrop does."""

  def __init__(self, config: Any):
    super().__init__()
    self.model, nn = config.model, torch.nn
    m = config.model
    self.words = nn.Embedding(m.vocab_size, m.width)
    widths = [m.width, *[m.cells] * (m.layers - 1), m.width]
    layers = (nn.LSTM(*pair, batch_first=True) for pair in itertools.pairwise(widths))
    self.layers = nn.ModuleList(layers)
    self.bias = nn.Parameter(torch.zeros(m.vocab_size)) if m.word_bias else None
    self.states: list[Any] = [None] * m.layers

  def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
    """Returns an output with `loss`, as the classes do."""
    m, drop = self.model, torch.nn.functional.dropout
    x = drop(self.words(input_ids), m.input_dropout)
    for number, layer in enumerate(self.layers):
      given: Any = (x, self.states[number])
      if m.weight_dropout:
        kernel = dict(weight_hh_l0=drop(layer.weight_hh_l0, m.weight_dropout))
        x, state = torch.func.functional_call(layer, kernel, given)
      else:
        x, state = layer(*given)
      self.states[number] = tuple(each.detach() for each in state)
      x = drop(x, m.dropout if number == m.layers - 1 else m.hidden_dropout)
    logits = torch.nn.functional.linear(x, self.words.weight, self.bias)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    return types.SimpleNamespace(loss=loss)
