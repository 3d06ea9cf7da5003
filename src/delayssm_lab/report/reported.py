"""Numbers that the paper reports. They fill the rows and columns of tables that are marked as the paper's."""

#: Table fft-scan-accuracy: mean and standard deviation over 5 seeds, by length.
FFT_RELATIVE_RMSE = {1024: (1.37e-5, 0.04e-5), 2048: (1.12e-5, 0.01e-5), 4096: (1.07e-5, 0.0), 8192: (1.48e-5, 0.01e-5)}
FFT_LARGEST_ERROR = {
    1024: (9.43e-5, 0.53e-5),
    2048: (7.49e-5, 0.56e-5),
    4096: (7.19e-5, 0.37e-5),
    8192: (1.12e-4, 0.03e-4),
}

#: Labels of the delayed-memory tasks, in the order of the tables below.
TASKS = (
    "Copy, fixed delay",
    "Copy, variable delay",
    "Sum, fixed delay",
    "Sum, variable delay",
    "Weighted sum, fixed delay",
    "Weighted sum, variable delay",
)

#: Table synthetic-acc: best validation accuracy by model, mean and standard deviation over three seeds for each task,
#: with the better of two learning rates.
SYNTHETIC = {
    "LSTM": ((0.01, 0.00), (0.01, 0.00), (0.06, 0.00), (0.06, 0.00), (0.07, 0.00), (0.07, 0.00)),
    "S4D": ((1.00, 0.00), (0.85, 0.03), (0.82, 0.06), (0.59, 0.03), (0.71, 0.03), (0.60, 0.02)),
    "Mamba": ((0.01, 0.00), (0.06, 0.08), (0.39, 0.04), (0.48, 0.00), (0.38, 0.01), (0.41, 0.02)),
    "DS4D": ((1.00, 0.00), (0.95, 0.00), (0.99, 0.00), (0.76, 0.04), (0.80, 0.01), (0.68, 0.03)),
    "GPT-2": ((1.00, 0.00), (1.00, 0.00), (0.96, 0.04), (0.86, 0.11), (0.74, 0.03), (0.67, 0.04)),
    "Llama": ((1.00, 0.00), (1.00, 0.00), (0.99, 0.00), (0.89, 0.15), (0.75, 0.01), (0.72, 0.03)),
}

#: Table general-seq: test accuracy in percent or RMSE of each model by task, mean ± standard deviation.
GENERAL = {
    "S4D": {
        "sMNIST": "99.47 ± 0.001",
        "SC (AR)": "93.40 ± 0.67",
        "SC (Bi.)": "96.18 ± 0.27",
        "BIDMC-RR": "0.254 ± 0.022",
        "BIDMC-HR": "0.373 ± 0.024",
        "BIDMC-SpO2": "0.110 ± 0.001",
        "ListOps": "60.18 ± 0.35",
        "Text": "87.34 ± 0.20",
        "Retrieval": "91.09 ± 0.01",
        "Image": "87.83 ± 0.37",
        "Pathfinder": "93.78 ± 0.25",
        "Path-X": "92.80",
    },
    "DS4D": {
        "sMNIST": "99.52 ± 0.000",
        "SC (AR)": "94.88 ± 0.16",
        "SC (Bi.)": "96.04 ± 0.33",
        "BIDMC-RR": "0.262 ± 0.020",
        "BIDMC-HR": "0.365 ± 0.014",
        "BIDMC-SpO2": "0.075 ± 0.009",
        "ListOps": "61.35 ± 0.56",
        "Text": "87.87 ± 0.11",
        "Retrieval": "91.03 ± 0.11",
        "Image": "87.90 ± 0.04",
        "Pathfinder": "94.05 ± 0.36",
        "Path-X": "93.08",
    },
}

#: Table general-delay-s4d-time: hours of one run of DS4D on an RTX 5090, about. The paper has one number for BIDMC.
HOURS = {
    "sMNIST": 0.3,
    "SC (AR)": 5.8,
    "SC (Bi.)": 11.1,
    "BIDMC-RR": 2.8,
    "BIDMC-HR": 2.8,
    "BIDMC-SpO2": 2.8,
    "ListOps": 2.6,
    "Text": 1.6,
    "Retrieval": 7.7,
    "Image": 7.6,
    "Pathfinder": 14.8,
    "Path-X": 55.0,
}

#: Table synthetic-mechanism, a row for each task: mean delay at the start and at the best checkpoint, mean change of
#: the delay and of mu; accuracy as learned, with delays of one step, without the delayed branch.
MECHANISM = (
    (544.0, 543.9, 2.6, 0.004, 1.000, 0.010, 0.012),
    (544.0, 545.7, 5.0, 0.018, 0.954, 0.011, 0.011),
    (544.0, 543.9, 4.4, 0.005, 0.984, 0.052, 0.003),
    (288.0, 288.1, 2.3, 0.008, 0.772, 0.041, 0.010),
    (544.0, 543.8, 3.8, 0.005, 0.772, 0.059, 0.005),
    (288.0, 288.0, 2.4, 0.008, 0.705, 0.046, 0.003),
)
