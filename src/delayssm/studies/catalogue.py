"""All studies."""

from delayssm.studies.branch_fraction import BranchFraction
from delayssm.studies.efficiency import Efficiency, EfficiencyOnGPU
from delayssm.studies.fft_accuracy import FFTAccuracy
from delayssm.studies.full_size import FullSize
from delayssm.studies.general import General
from delayssm.studies.impulse import ImpulseResponses
from delayssm.studies.listening import Listening
from delayssm.studies.mechanism import Mechanism
from delayssm.studies.phase import Phase
from delayssm.studies.samples import Samples
from delayssm.studies.stability import Stability
from delayssm.studies.study import Study
from delayssm.studies.synthetic import PaperCopy, Synthetic


def studies() -> tuple[Study, ...]:
    """Cheap ones first."""
    return (
        Phase(),
        Stability(),
        Samples(),
        FFTAccuracy(),
        Efficiency(),
        EfficiencyOnGPU(),
        FullSize(),
        Mechanism(),
        Listening(),
        ImpulseResponses(),
        PaperCopy(),
        General(),
        BranchFraction(),
        Synthetic(),
    )
