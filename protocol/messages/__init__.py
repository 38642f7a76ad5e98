"""Messages between the processes of a job; one module a receiver. Every message is a frozen record.

Partitions of the data plane: ``CANONICAL`` holds one row a sample (what is trained on), ``STAGING`` one row a
model call, and the chunks of those that have not finished.
"""

from __future__ import annotations

from protocol.messages.base import CANONICAL as CANONICAL
from protocol.messages.base import NO_BACKEND as NO_BACKEND
from protocol.messages.base import PARKED as PARKED
from protocol.messages.base import PARTITIONS as PARTITIONS
from protocol.messages.base import STAGING as STAGING
from protocol.messages.base import Coordinate as Coordinate
from protocol.messages.base import Message as Message
from protocol.messages.base import PromptTask as PromptTask
from protocol.messages.base import ToolCall as ToolCall
from protocol.messages.data_plane import ClearSamples as ClearSamples
from protocol.messages.data_plane import GetSamples as GetSamples
from protocol.messages.data_plane import ListSampleIds as ListSampleIds
from protocol.messages.data_plane import LoadCheckpoint as LoadCheckpoint
from protocol.messages.data_plane import PutSamples as PutSamples
from protocol.messages.data_plane import SaveCheckpoint as SaveCheckpoint
from protocol.messages.data_plane import Saved as Saved
from protocol.messages.finalizer import FinalizeGroup as FinalizeGroup
from protocol.messages.finalizer import GroupPublished as GroupPublished
from protocol.messages.finalizer import Receipt as Receipt
from protocol.messages.finalizer import RowMeta as RowMeta
from protocol.messages.finalizer import SiblingReceipt as SiblingReceipt
from protocol.messages.gym import Authorised as Authorised
from protocol.messages.gym import Commit as Commit
from protocol.messages.gym import Committed as Committed
from protocol.messages.gym import Control as Control
from protocol.messages.gym import Discover as Discover
from protocol.messages.gym import Forget as Forget
from protocol.messages.gym import Prepare as Prepare
from protocol.messages.gym import Prepared as Prepared
from protocol.messages.gym import Renew as Renew
from protocol.messages.gym import Restore as Restore
from protocol.messages.gym import Resume as Resume
from protocol.messages.gym import Retire as Retire
from protocol.messages.gym import Row as Row
from protocol.messages.gym import RowCompleted as RowCompleted
from protocol.messages.gym import RowFailed as RowFailed
from protocol.messages.gym import RowRefused as RowRefused
from protocol.messages.gym import RunRows as RunRows
from protocol.messages.gym import SavedEpisode as SavedEpisode
from protocol.messages.gym import Topology as Topology
from protocol.messages.services import Effect as Effect
from protocol.messages.services import EffectAnswer as EffectAnswer
from protocol.messages.training import DiscardGroup as DiscardGroup
from protocol.messages.training import FinishTrainStep as FinishTrainStep
from protocol.messages.training import LoadWeights as LoadWeights
from protocol.messages.training import SaveWeights as SaveWeights
from protocol.messages.training import TrainGroup as TrainGroup
from protocol.messages.worker import DURABLE_FAILURE as DURABLE_FAILURE
from protocol.messages.worker import DURABLE_PREFIX as DURABLE_PREFIX
from protocol.messages.worker import TERMINAL_COMPLETION as TERMINAL_COMPLETION
from protocol.messages.worker import CutAck as CutAck
from protocol.messages.worker import CutCalls as CutCalls
from protocol.messages.worker import CutReceipt as CutReceipt
from protocol.messages.worker import Generate as Generate
from protocol.messages.worker import Generated as Generated
from protocol.messages.worker import Health as Health
from protocol.messages.worker import MediaSource as MediaSource
from protocol.messages.worker import OpenGate as OpenGate
from protocol.messages.worker import PrefixEvidence as PrefixEvidence
from protocol.messages.worker import Probe as Probe
from protocol.messages.worker import RetainedMedia as RetainedMedia
from protocol.messages.worker import RetirePrefix as RetirePrefix
from protocol.messages.worker import Sampling as Sampling
from protocol.messages.worker import SetWeightVersion as SetWeightVersion
from protocol.messages.worker import Ticket as Ticket
