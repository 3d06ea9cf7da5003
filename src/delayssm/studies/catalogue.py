"""All studies."""

from delayssm.runtime import Device
from delayssm.studies.efficiency import Efficiency
from delayssm.studies.fft_accuracy import FFTAccuracy
from delayssm.studies.impulse import ImpulseResponses
from delayssm.studies.mechanism import Mechanism
from delayssm.studies.phase import Phase
from delayssm.studies.stability import Stability
from delayssm.studies.study import Study
from delayssm.studies.synthetic import PaperCopy, Synthetic


def studies(device: Device = "cpu") -> tuple[Study, ...]:
    """Cheap ones first. Speed is measured on a device; all else is the same on any."""
    return (
        Phase(),
        Stability(),
        FFTAccuracy(),
        Efficiency(device=device),
        Mechanism(),
        ImpulseResponses(),
        PaperCopy(),
        Synthetic(),
    )
