"""The names of `interleavings.correspondence` that others use, each written down once."""

from .follower import Coverage as Coverage
from .follower import Event as Event
from .follower import EventlessFollower as EventlessFollower
from .follower import Follower as Follower
from .follower import Remembered as Remembered
from .follower import Stutter as Stutter
