"""ElectraForMaskedLM and ElectraForPreTraining, joined by the usual loop: shared embeddings, a
multinomial draw at the targets."""

from typing import Any

import torch
import transformers

from bertjax.errors import UserError
from bertjax.models.electra import generator_size
from bertjax.tools.bench.parts.rival_step import Rival, fields_of, masked_inputs


class Electra(torch.nn.Module):
  """ElectraForMaskedLM and ElectraForPreTraining in one step, like `objectives/rtd.py`."""

  def __init__(self, config: Any):
    super().__init__()
    model, objective = config.model, config.objective
    needed = dict(generator='own', tied_embeddings=True, train='both', temperature=1.0)
    got = {key: (model if key in model else objective)[key] for key in needed}
    if got != needed:
      raise UserError(f'--against=transformers needs {needed}, got {got}')
    table = dict(embedding_size=model.embedding_width or model.width, pad_token_id=0)
    own = model.copy_and_resolve_references()
    own.update(generator_size(model))
    self.generator = transformers.ElectraForMaskedLM(
      transformers.ElectraConfig(**fields_of(own), **table)
    )
    self.judge = transformers.ElectraForPreTraining(
      transformers.ElectraConfig(**fields_of(model), **table)
    )
    self.generator.electra.embeddings = self.judge.electra.embeddings
    words = self.judge.electra.embeddings.word_embeddings
    self.generator.generator_lm_head.weight = words.weight
    self.weights = (objective.generator_weight, objective.discriminator_weight)

  def forward(self, input_ids: torch.Tensor, labels: torch.Tensor, **rest: torch.Tensor) -> Any:
    """Returns an output with `loss`, as the classes do."""
    made = self.generator(input_ids, labels=labels, **rest)
    chosen = labels >= 0
    original = torch.where(chosen, labels, input_ids)
    fake = original.clone()
    with torch.no_grad():
      fake[chosen] = torch.multinomial(made.logits[chosen].softmax(-1), 1)[:, 0]
    judged = self.judge(fake, labels=(fake != original).long(), **rest)
    made.loss = self.weights[0] * made.loss + self.weights[1] * judged.loss
    return made


RIVAL = Rival(Electra, masked_inputs)
