"""The names of `spec.machines` that others use, each written down once."""

from .catalogue import MACHINES as MACHINES
from .catalogue import UnknownName as UnknownName
from .catalogue import all_variants as all_variants
from .catalogue import machine_named as machine_named
from .catalogue import scopes_named as scopes_named
from .catalogue import variant_named as variant_named
from .scopes import FAMILIES as FAMILIES
from .scopes import LARGE as LARGE
from .scopes import MEDIUM as MEDIUM
from .scopes import SMALL as SMALL
from .scopes import Pinned as Pinned
from .scopes import Scope as Scope
