"""Extraction: from a model to its list of operations. Importing this package does not import torch.

`sources` finds out what kind of model is given (a name, a module, a configuration, a file). `tracing` runs it on the
meta device with the `recorder`, which looks up every operator in `operators`. `models` builds models by name, `files`
reads files without running their code, and `templates` holds the operations of well-known models, so that these need no
torch.
"""

from .job import Job
from .operators import WHITELIST
from .sources import named_network, network_of, network_of_job

__all__ = ["WHITELIST", "Job", "named_network", "network_of", "network_of_job"]
