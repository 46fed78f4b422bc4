"""A model becomes a list of operations. Importing this room does not import torch; looking into a torch model does.

`sources` decides what a model is (a name, a module, a configuration, a file) and `tracing` runs it on the meta device
with the `recorder`, which looks every operator up in `operators`. `models` builds named models, `files` reads files
without running their code, and `templates` answers for well-known models without torch.
"""

from .operators import WHITELIST
from .sources import named_network, network_of

__all__ = ["WHITELIST", "named_network", "network_of"]
