"""Flags of every test; also puts this folder on the path, for `import cases`."""

import jax

jax.config.update('jax_numpy_rank_promotion', 'raise')
