"""The names of `proofs.contracts` that others use, each written down once."""

from .functions import CONTRACTS as CONTRACTS
from .runs import SECONDS as SECONDS
from .runs import ContractOutcome as ContractOutcome
from .runs import is_refuted as is_refuted
from .runs import outcome_of as outcome_of
from .runs import understood as understood
from .wrong_versions import WRONG_VERSIONS as WRONG_VERSIONS
from .wrong_versions import Wrong as Wrong
