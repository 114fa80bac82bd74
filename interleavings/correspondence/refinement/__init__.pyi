"""The names of `interleavings.correspondence.refinement` that others use, each written down once."""

from .barrier import BarrierTasks as BarrierTasks
from .barrier import barrier_model as barrier_model
from .barrier import barrier_of_machine as barrier_of_machine
from .barrier import follow_barrier as follow_barrier
from .barrier import follow_silent_barrier as follow_silent_barrier
from .barrier import with_cancellation as with_cancellation
from .cut import Saves as Saves
from .cut import cut_model as cut_model
from .cut import follow_cut as follow_cut
from .cut import follow_silent_cut as follow_silent_cut
from .images import handed_out_count as handed_out_count
from .images import image_of_files as image_of_files
from .images import image_of_machine as image_of_machine
from .images import owners_of_files as owners_of_files
from .images import restored_state as restored_state
from .prompts import Prompts as Prompts
from .vocabulary import BARRIER_EVENTS as BARRIER_EVENTS
from .vocabulary import CUT_EVENTS as CUT_EVENTS
from .vocabulary import DURABLE_LATER as DURABLE_LATER
from .vocabulary import FIGURE_EVENTS as FIGURE_EVENTS
from .words import MachineWords as MachineWords
