"use strict";

// The page of the delay system: its controls, and what they draw.

const rounded = (value, digits = 3) => String(Number(value.toPrecision(digits)));
const counted = (value) => value.toLocaleString("en");

const TABLE = [
  {
    name: "decay", label: "Decay per step", min: 1e-4, max: 1, log: true, value: 0.02,
    hint: (decay) => `both branches together keep ${rounded(100 * Math.exp(-decay), 4)} % of the state`,
  },
  {
    name: "frequency", label: "Frequency, in π per step", min: 0, max: 1, step: 0.001, value: 0.05,
    hint: (frequency) => (frequency ? `a period of ${rounded(2 / frequency)} steps` : "no oscillation"),
  },
  {
    name: "p", label: "Branch fraction p", min: 0, max: 0.99, step: 0.01, value: 0.3,
    hint: (p) => (p ? `${rounded(100 * p)} % of the budget for the delayed branch` : "no delayed branch: S4D"),
  },
  {
    name: "phase", label: "Phase, in π", min: -1, max: 1, step: 0.01, value: 0,
    hint: (phase) => `what comes back is turned by ${rounded(180 * phase)}°`,
  },
  {
    name: "delay", label: "Delay", min: 1, max: 300, step: 0.05, value: 60.5,
    hint: (delay) => `k = ${Math.floor(delay)} whole steps and a fraction of ${rounded(delay - Math.floor(delay), 2)}`,
  },
  {
    name: "interpolation", label: "Interpolation", value: true,
    hint: (on) => (on ? "the fraction α lies between two neighbouring states" : "the fraction of the delay is dropped"),
  },
  {
    name: "steps", label: "Steps shown", min: 50, max: 2000, step: 1, whole: true, value: 400,
    hint: () => "in the pictures over time",
  },
  {
    name: "modes", label: "Stored modes N/2", min: 1, max: 64, step: 1, whole: true, value: 16,
    hint: (modes) => `of one channel: N = ${2 * modes}`,
  },
  {
    name: "tokens", label: "Longest stream", min: 64, max: 1e6, log: true, whole: true, value: 1000,
    hint: () => "in tokens, for a stream that has an end",
  },
];

const ECHOES = 4;
const FREQUENCIES = 2049;
const QUIET = 1e-6; // of the frequency response: -120 dB

const byId = (id) => document.getElementById(id);
const figures = {
  kernel: new Plot(byId("kernel"), { x: "step t", y: "kernel" }),
  echoes: new Plot(byId("echoes"), { x: "step t", y: "output" }),
  response: new Plot(byId("response"), { x: "frequency, in π per step", y: "gain, dB" }),
  poles: new Plot(byId("poles"), { x: "real part", y: "imaginary part", disc: true }),
};

function show(values) {
  const angles = { frequency: Math.PI * values.frequency, phase: Math.PI * values.phase };
  const system = discretize({ ...values, ...angles });
  showKernel(system, values);
  showEchoes(system, values);
  showResponse(system);
  const found = poles(system);
  showPoles(found);
  showStability(system, found);
  showMemories(system, values);
}

function showKernel(system, { steps }) {
  const y = kernel(system, steps);
  const largest = y.reduce((best, value, t) => (Math.abs(value) > Math.abs(y[best]) ? t : best), 0);
  figures.kernel.draw({
    x: [0, steps],
    y: rangeOf(y),
    curves: [{ name: "first", x: [0, 1], y }],
    words: `The impulse response over ${steps} steps. It is largest at step ${largest}: ${rounded(y[largest])}.`,
  });
}

function showEchoes(system, { steps }) {
  const parts = echoes(system, steps, ECHOES);
  const sizes = parts.map((y) => rounded(y.reduce((most, value) => Math.max(most, Math.abs(value)), 0)));
  figures.echoes.draw({
    x: [0, steps],
    y: rangeOf(...parts),
    curves: parts.map((y, j) => ({ name: ["first", "second", "third", "fourth"][j], x: [0, 1], y })),
    words: `The first ${ECHOES} parts of the kernel: the spike itself and its echoes. At most they reach ${sizes.join(", ")}.`,
  });
}

function showResponse(system) {
  const step = 1 / (FREQUENCIES - 1);
  const gain = Float64Array.from({ length: FREQUENCIES }, (_, i) =>
    complex.abs(frequencyResponse(system, i * step * Math.PI)),
  );
  const y = gain.map((value) => 20 * Math.log10(Math.max(value, QUIET)));
  const peak = gain.indexOf(Math.max(...gain));
  figures.response.draw({
    x: [0, 1],
    y: [Math.floor(Math.min(...y) / 10) * 10, Math.ceil((Math.max(...y) + 1) / 10) * 10],
    curves: [{ name: "first", x: [0, step], y }],
    words: `The gain at each frequency. It is largest at ${rounded(peak * step)} π per step: ${rounded(y[peak])} decibels.`,
  });
}

function showPoles(found) {
  const [re, im] = [0, 1].map((part) => Float64Array.from(found, (pole) => pole[part]));
  figures.poles.draw({
    x: [-1.1, 1.1],
    y: [-1.1, 1.1],
    points: [
      { name: "conjugate", re, im: im.map((value) => -value) },
      { name: "first", re, im },
    ],
    words: `${found.length} poles of the mode, all inside the unit circle.`,
  });
}

function showStability(system, found) {
  const { margin, radius, steps } = stability(system, found);
  byId("margin").textContent = rounded(margin, 4);
  byId("radius").textContent = rounded(radius, 7);
  byId("slowest").textContent = `${counted(Number(rounded(steps)))} steps`;
  byId("count").textContent = counted(found.length);
}

function showMemories({ k }, { modes, tokens }) {
  const { rings, history } = memories(k, modes, tokens);
  byId("rings-kept").textContent = `the last state, and ${k} slots of what it feeds back`;
  byId("rings-numbers").textContent = counted(rings.state + rings.feedback);
  byId("rings-bytes").textContent = counted(rings.bytes);
  byId("history-kept").textContent = `a history of ${counted(history.slots)} slots`;
  byId("history-numbers").textContent = counted(history.slots);
  byId("history-bytes").textContent = counted(history.bytes);
  const most = Math.max(rings.bytes, history.bytes);
  byId("rings-bar").style.width = `${(100 * rings.bytes) / most}%`;
  byId("history-bar").style.width = `${(100 * history.bytes) / most}%`;
}

// At most one drawing for each frame of the screen, however fast a slider moves.
let waiting = null;
const controls = new Controls(byId("controls"), TABLE, byId("note"), (values) => {
  if (waiting === null) {
    requestAnimationFrame(() => {
      const latest = waiting;
      waiting = null;
      show(latest);
    });
  }
  waiting = values;
});
