"""All studies."""

from delayssm_lab.measure.efficiency import Efficiency, EfficiencyOnGPU
from delayssm_lab.measure.fft_accuracy import FFTAccuracy
from delayssm_lab.measure.full_size import FullSize
from delayssm_lab.studies.branch_fraction import BranchFraction
from delayssm_lab.studies.general import General
from delayssm_lab.studies.impulse import ImpulseResponses
from delayssm_lab.studies.listening import Listening
from delayssm_lab.studies.mechanism import Mechanism
from delayssm_lab.studies.pathfinder_images import Samples
from delayssm_lab.studies.phase import Phase
from delayssm_lab.studies.stability import Stability
from delayssm_lab.studies.study import Study
from delayssm_lab.studies.synthetic import PaperCopy, Synthetic


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
