"""All studies, by name on the command line."""

from delayssm_lab.measure.convolution_accuracy import ConvolutionAccuracy
from delayssm_lab.measure.convolution_speed import ConvolutionSpeed
from delayssm_lab.measure.decoding_speed import DecodingSpeed
from delayssm_lab.measure.export_speed import ExportSpeed
from delayssm_lab.measure.fft_accuracy import FFTAccuracy
from delayssm_lab.measure.full_size import FullSize
from delayssm_lab.measure.generator_speed import GeneratorSpeed
from delayssm_lab.measure.gpu_binaries import GPUBinaries
from delayssm_lab.measure.import_time import ImportTime
from delayssm_lab.measure.kernel_accuracy import KernelAccuracy
from delayssm_lab.measure.kernel_speed import KernelSpeed
from delayssm_lab.measure.long_sequences import LongSequences
from delayssm_lab.measure.model_speed import ModelSpeed
from delayssm_lab.measure.prompt_speed import PromptSpeed
from delayssm_lab.measure.training_speed import TrainingSpeed
from delayssm_lab.measure.transform_speed import TransformSpeed
from delayssm_lab.studies.delta_memory import WithDeltaMemory
from delayssm_lab.studies.equations.echo import EchoPaths
from delayssm_lab.studies.equations.mackey_glass import MackeyGlass
from delayssm_lab.studies.forecasting import Forecasting
from delayssm_lab.studies.general import General
from delayssm_lab.studies.impulse import ImpulseResponses
from delayssm_lab.studies.initialisation import Initialisation
from delayssm_lab.studies.language import Language
from delayssm_lab.studies.listening import Listening
from delayssm_lab.studies.mechanism import Mechanism
from delayssm_lab.studies.pathfinder_images import PathfinderImages
from delayssm_lab.studies.phase import Phase
from delayssm_lab.studies.recall import Recall, RecallLayers
from delayssm_lab.studies.recovery import Recovery
from delayssm_lab.studies.separate_rates import SeparateRates
from delayssm_lab.studies.speech import Speech
from delayssm_lab.studies.stability import Stability
from delayssm_lab.studies.suggested import SuggestedAtPaperScale, SuggestedDelays
from delayssm_lab.studies.synthetic import PaperScale, Synthetic
from delayssm_lab.study import Study


def studies() -> tuple[Study, ...]:
    """Return all studies: measurements on the CPU and on a GPU, then experiments, cheap ones first."""
    return *measurements(), *gpu_measurements(), *experiments()


def measurements() -> tuple[Study, ...]:
    """Return the measurements of speed, memory and accuracy that `make bench` makes."""
    return (
        KernelAccuracy(),
        ConvolutionAccuracy(),
        FFTAccuracy(),
        ImportTime(),
        TransformSpeed(),
        ConvolutionSpeed(),
        KernelSpeed(),
        TrainingSpeed(),
        LongSequences(),
        ModelSpeed(),
        FullSize(),
        DecodingSpeed(),
        PromptSpeed(),
        ExportSpeed(),
        GeneratorSpeed(),
        GPUBinaries(),
    )


def gpu_measurements() -> tuple[Study, ...]:
    """Return the measurements that need a GPU."""
    return (
        TrainingSpeed(device="cuda"),
        LongSequences(device="cuda"),
        ModelSpeed(device="cuda"),
        DecodingSpeed(device="cuda"),
        PromptSpeed(device="cuda"),
    )


def experiments() -> tuple[Study, ...]:
    """Return the studies of trained models and of the mathematics."""
    return (
        Phase(),
        Stability(),
        PathfinderImages(),
        Recovery(),
        Forecasting(),
        EchoPaths(),
        MackeyGlass(),
        Synthetic(),
        SeparateRates(),
        SuggestedDelays(),
        WithDeltaMemory(),
        Initialisation(),
        Recall(),
        RecallLayers(),
        PaperScale(),
        SuggestedAtPaperScale(),
        Mechanism(),
        ImpulseResponses(),
        General(),
        Language(),
        Listening(),
        Speech(),
    )
