"""The names of `spec.machines.store` that others use, each written down once."""

from .actions import PUBLISHED as PUBLISHED
from .actions import REMOVED as REMOVED
from .actions import StoreScope as StoreScope
from .actions import store as store
from .actions import superseded as superseded
from .actions import survives_published as survives_published
from .actions import valid as valid
