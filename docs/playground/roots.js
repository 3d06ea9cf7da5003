"use strict";

// All roots of a polynomial with few terms and any degree, by the method of Aberth and Ehrlich: Newton's method for
// all roots together, in which each is kept away from the others.

// Return the roots other than 0 of the sum of coefficient z^degree over terms [degree, coefficient]. Terms of the same
// degree are added.
function roots(terms) {
  const polynomial = merged(terms);
  const found = starts(polynomial);
  const done = found.map(() => false);
  for (let round = 0; round < 200 && done.includes(false); round++) {
    for (let j = 0; j < found.length; j++) {
      if (!done[j]) done[j] = improve(polynomial, found, j);
    }
  }
  return found;
}

// Return the terms that are not zero by increasing degree, divided by the lowest power of z.
function merged(terms) {
  const sums = new Map();
  for (const [degree, coefficient] of terms) {
    sums.set(degree, complex.add(sums.get(degree) ?? [0, 0], coefficient));
  }
  const present = [...sums].filter(([, coefficient]) => complex.abs(coefficient) > 0).sort(([a], [b]) => a - b);
  return present.map(([degree, coefficient]) => [degree - present[0][0], coefficient]);
}

// Return starting points. The slopes of the upper convex hull of (degree, log |coefficient|) tell how large the roots
// are; those of one size are spread over a circle.
function starts(polynomial) {
  const points = polynomial.map(([degree, coefficient]) => [degree, Math.log(complex.abs(coefficient))]);
  const slope = ([d, a], [e, b]) => (b - a) / (e - d);
  const hull = [];
  for (const point of points) {
    while (hull.length > 1 && slope(hull.at(-2), hull.at(-1)) <= slope(hull.at(-1), point)) hull.pop();
    hull.push(point);
  }
  const found = [];
  for (let i = 1; i < hull.length; i++) {
    const count = hull[i][0] - hull[i - 1][0];
    const radius = Math.exp(-slope(hull[i - 1], hull[i]));
    for (let j = 0; j < count; j++) {
      found.push(complex.polar(radius, (2 * Math.PI * j) / count + 0.7 * (i + 1))); // no symmetry to be stuck in
    }
  }
  return found;
}

// Move root j by P / (P' - P sum of 1 / (z_j - z_i)), and return whether it has settled.
function improve(polynomial, found, j) {
  const z = found[j];
  const { value, slope, size } = evaluate(polynomial, z);
  const rounding = Number.EPSILON * found.length; // of the angle of the highest power
  if (complex.abs(value) <= rounding * size) return true;
  let re = 0;
  let im = 0;
  for (let i = 0; i < found.length; i++) {
    if (i === j) continue;
    const x = z[0] - found[i][0];
    const y = z[1] - found[i][1];
    const square = x * x + y * y;
    re += x / square;
    im -= y / square;
  }
  const repelled = complex.add(slope, complex.scale(-1, complex.multiply(value, [re, im])));
  const move = complex.divide(value, repelled);
  found[j] = complex.add(z, complex.scale(-1, move));
  return complex.abs(move) <= Number.EPSILON * complex.abs(z);
}

// Return a polynomial at z, its derivative, and the sum of the sizes of its terms, to which rounding errors compare, all
// divided by the size of the largest term: powers of z would overflow.
function evaluate(polynomial, z) {
  const [radius, angle] = [Math.log(complex.abs(z)), Math.atan2(z[1], z[0])];
  const logs = polynomial.map(([degree, coefficient]) => Math.log(complex.abs(coefficient)) + degree * radius);
  const largest = Math.max(...logs);
  let [value, slope, size] = [[0, 0], [0, 0], 0];
  polynomial.forEach(([degree, coefficient], i) => {
    const term = complex.polar(Math.exp(logs[i] - largest), Math.atan2(coefficient[1], coefficient[0]) + degree * angle);
    value = complex.add(value, term);
    slope = complex.add(slope, complex.scale(degree, term));
    size += complex.abs(term);
  });
  return { value, slope: complex.divide(slope, z), size };
}
