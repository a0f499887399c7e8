"""Noise: what of an example is hidden, and what is asked for. One rule a file, chosen by
`config.data.mask.name`; each exports it as MASKING (`bertjax/data_contracts.py`).

To add a rule, write a file here or a module of your own (docs/extending.md). Its steps are in
`bertjax/examples/targets.py`: which tokens may be chosen, the units that are chosen as a whole, how
many, what the input shows there.

A unit is what a rule hides as a whole, a German compound for instance. Two places say where units
begin:

  words              `Vocabulary.word_starts` (bertjax/vocab/vocabulary.py), one bool per id: the
                     pieces from one start to the next are a word (`targets.words`)
  phrases, entities  the store's units, one number per token of the text. `prepare` asks
                     config.data.segmenter=MODULE:FUNCTION for them, or a lexicon;
                     `layout.units` reads them

So compounds need a segmenter and the rule `ernie` or `spanbert` (entity_prob), and no new file.
"""
