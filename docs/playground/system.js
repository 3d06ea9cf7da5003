"use strict";

// The mathematics of one mode of a delay system, and nothing that draws. Time is counted in steps, and the mode has
// B = C = 1:
//
//     h_t = lam h_(t-1) + mu [(1 - alpha) h_(t-k) + alpha h_(t-k-1)] + b x_t        y_t = 2 Re(h_t)
//
// A complex number is a pair [re, im]; a complex signal is { re, im }, two Float64Arrays.

const complex = {
  polar: (radius, angle) => [radius * Math.cos(angle), radius * Math.sin(angle)],
  multiply: ([a, b], [c, d]) => [a * c - b * d, a * d + b * c],
  divide([a, b], [c, d]) {
    const square = c * c + d * d;
    return [(a * c + b * d) / square, (b * c - a * d) / square];
  },
  scale: (factor, [a, b]) => [factor * a, factor * b],
  add: (...terms) => terms.reduce(([a, b], [c, d]) => [a + c, b + d]),
  abs: ([a, b]) => Math.hypot(a, b),
};

// Return the coefficients of a mode, and the delay as k + alpha steps.
//
//     zeta = -decay + i frequency
//     lam  = (1 - p) exp(zeta)        mu = p |exp(zeta)| e^(i phase)        b = (lam - 1) / (zeta + log(1 - p))
//
// Without interpolation the fraction of the delay is dropped.
function discretize({ decay, frequency, p, phase, delay, interpolation }) {
  const budget = Math.exp(-decay);
  const lam = complex.polar((1 - p) * budget, frequency);
  const mu = complex.polar(p * budget, phase);
  const exponent = [Math.log1p(-p) - decay, frequency];
  const b = complex.divide(expm1(exponent), exponent);
  const k = Math.floor(delay);
  return { lam, mu, b, k, alpha: interpolation ? delay - k : 0 };
}

// Return exp(w) - 1 without cancellation where w is small.
function expm1([re, im]) {
  const grown = Math.expm1(re);
  const half = Math.sin(im / 2);
  return [grown * Math.cos(im) - 2 * half * half, (grown + 1) * Math.sin(im)];
}

// Return the states that follow from what drives them: h_t = lam h_(t-1) + drive_t.
function decaying(lam, drive) {
  const length = drive.re.length;
  const h = { re: new Float64Array(length), im: new Float64Array(length) };
  let re = 0;
  let im = 0;
  for (let t = 0; t < length; t++) {
    [re, im] = [lam[0] * re - lam[1] * im + drive.re[t], lam[0] * im + lam[1] * re + drive.im[t]];
    h.re[t] = re;
    h.im[t] = im;
  }
  return h;
}

// Return what states feed back: mu [(1 - alpha) h_(t-k) + alpha h_(t-k-1)].
function fedBack({ mu, k, alpha }, h) {
  const length = h.re.length;
  const fed = { re: new Float64Array(length), im: new Float64Array(length) };
  for (let t = k; t < length; t++) {
    const older = t - k - 1;
    const re = (1 - alpha) * h.re[t - k] + (older < 0 ? 0 : alpha * h.re[older]);
    const im = (1 - alpha) * h.im[t - k] + (older < 0 ? 0 : alpha * h.im[older]);
    fed.re[t] = mu[0] * re - mu[1] * im;
    fed.im[t] = mu[0] * im + mu[1] * re;
  }
  return fed;
}

// Return the first echoes of a spike, each as a list of outputs. Echo 0 is the main branch alone; echo j + 1 is what
// the delayed branch makes of echo j. All of them together are the kernel.
function echoes(system, length, count) {
  const drive = { re: new Float64Array(length), im: new Float64Array(length) };
  [drive.re[0], drive.im[0]] = system.b;
  const found = [];
  for (let j = 0, h = decaying(system.lam, drive); j < count; j++) {
    found.push(h.re.map((re) => 2 * re));
    h = decaying(system.lam, fedBack(system, h));
  }
  return found;
}

// Return the impulse response by the recurrence.
function kernel({ lam, mu, b, k, alpha }, length) {
  const re = new Float64Array(length);
  const im = new Float64Array(length);
  [re[0], im[0]] = b;
  const at = (signal, t) => (t < 0 ? 0 : signal[t]);
  for (let t = 1; t < length; t++) {
    const delayed = [re, im].map((part) => (1 - alpha) * at(part, t - k) + alpha * at(part, t - k - 1));
    const h = complex.add(complex.multiply(lam, [re[t - 1], im[t - 1]]), complex.multiply(mu, delayed));
    [re[t], im[t]] = h;
  }
  return re.map((value) => 2 * value);
}

// Return K(e^(i omega)), where a mode and its conjugate are summed:
//
//     G(z) = b / (1 - lam z^-1 - mu z^-k [(1 - alpha) + alpha z^-1])        K(e^(i omega)) = G(omega) + conj(G(-omega))
function frequencyResponse({ lam, mu, b, k, alpha }, omega) {
  const ofMode = (angle) => {
    const u = complex.polar(1, -angle);
    const delayed = complex.multiply(complex.polar(1, -k * angle), [1 - alpha + alpha * u[0], alpha * u[1]]);
    const fed = complex.add(complex.multiply(lam, u), complex.multiply(mu, delayed));
    return complex.divide(b, [1 - fed[0], -fed[1]]);
  };
  const [re, im] = ofMode(-omega);
  return complex.add(ofMode(omega), [re, -im]);
}

// Return the poles of a mode. Multiplying the denominator of G by z^(k+1) gives
//
//     z^(k+1) - lam z^k - mu (1 - alpha) z - mu alpha = 0.
function poles({ lam, mu, k, alpha }) {
  return roots([
    [k + 1, [1, 0]],
    [k, complex.scale(-1, lam)],
    [1, complex.scale(alpha - 1, mu)],
    [0, complex.scale(-alpha, mu)],
  ]);
}

// Return how far the system is from instability: the part of the budget |lam| + |mu| < 1 that is left, whatever the
// delay; the largest radius of a pole; and the steps in which the slowest pole decays to 1/e.
function stability({ lam, mu }, found) {
  const radius = Math.max(...found.map(complex.abs));
  return { margin: 1 - complex.abs(lam) - complex.abs(mu), radius, steps: -1 / Math.log(radius) };
}

// Return what the two memories of a stream take for one channel with n stored modes, as `Rings` and `History` of
// delayssm.system.memory do: numbers, and bytes where the signal is float32. The last state is float64.
function memories(k, modes, tokens) {
  const near = 64; // a history has at least one block
  const slots = Math.max(near, 2 ** Math.max(0, 31 - Math.clz32(tokens - 1)));
  return {
    rings: { state: 2 * modes, feedback: 2 * modes * k, bytes: 2 * modes * (8 + 4 * k) },
    history: { slots, bytes: 4 * slots },
  };
}
