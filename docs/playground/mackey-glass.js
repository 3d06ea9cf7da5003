"use strict";

// The Mackey-Glass equation as in delayssm_lab.data.generate.mackey_glass:
//
//     x'(t) = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x(t),    by Euler's method in tenths of a step.

const SUBSTEPS = 10;
const TAU = 17;

class MackeyGlass {
  #past;
  #oldest = 0;

  // `past` has the values of the last 17 steps, ten for each.
  constructor(past, x = 1.2) {
    this.#past = [...past];
    this.x = x;
  }

  // Return an equation with a random past around 1.2.
  static random() {
    return new MackeyGlass(Array.from({ length: TAU * SUBSTEPS }, () => 1.2 + 0.2 * (Math.random() - 0.5)));
  }

  // Go on by one step, and return tanh(x - 1).
  step() {
    for (let i = 0; i < SUBSTEPS; i++) {
      const delayed = this.#past[this.#oldest];
      this.#past[this.#oldest] = this.x;
      this.#oldest = (this.#oldest + 1) % this.#past.length;
      this.x += ((0.2 * delayed) / (1 + delayed ** 10) - 0.1 * this.x) / SUBSTEPS;
    }
    return Math.tanh(this.x - 1);
  }

  // Return so many values.
  run(count) {
    return Float64Array.from({ length: count }, () => this.step());
  }
}
