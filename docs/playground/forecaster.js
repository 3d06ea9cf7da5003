"use strict";

// The page of the forecaster: values arrive, and each is answered by a forecast of a later one.

const WINDOW = 240; // steps shown
const WASHOUT = 100;
const JOLT = 0.3;

const byId = (id) => document.getElementById(id);
const plot = new Plot(byId("series"), { x: "step", y: "value" });
const TABLE = [
  {
    name: "rate", label: "Values per second", min: 2, max: 200, log: true, whole: true, value: 30,
    hint: () => "that arrive and are forecast",
  },
];

// A model that follows a series. forecasts[t] is what was said at t about t + ahead.
class Following {
  values = [];
  forecasts = [];

  static async begin() {
    const following = new Following();
    following.session = await StreamingSession.open("mackey-glass");
    following.ahead = following.session.about.ahead;
    return following;
  }

  reset() {
    this.values = [];
    this.forecasts = [];
    this.session.reset();
  }

  async push(values) {
    const { mean, scale } = this.session.about;
    const answers = await this.session.push(Float32Array.from(values, (value) => (value - mean) / scale));
    this.values.push(...values);
    this.forecasts.push(...Array.from(answers, (answer) => answer * scale + mean));
  }

  // Return the error of the forecasts that have come true: RMSE in per cent of the RMS of the values.
  error() {
    let [wrong, size] = [0, 0];
    for (let t = this.ahead; t < this.values.length; t++) {
      wrong += (this.forecasts[t - this.ahead] - this.values[t]) ** 2;
      size += this.values[t] ** 2;
    }
    return 100 * Math.sqrt(wrong / size);
  }

  draw() {
    const { values, forecasts, ahead } = this;
    const last = values.length;
    const first = Math.max(0, last + ahead - WINDOW);
    plot.draw({
      x: [first, first + WINDOW],
      y: [-0.75, 0.55],
      curves: [
        { name: "first", x: [first, 1], y: values.slice(first) },
        { name: "second", x: [Math.max(first, ahead), 1], y: forecasts.slice(Math.max(0, first - ahead)) },
      ],
      words: `${last} values have arrived, and the forecasts reach ${ahead} steps further.`,
    });
    byId("arrived").textContent = last.toLocaleString("en");
    byId("error").textContent = last > 2 * ahead ? `${this.error().toFixed(1)} %` : "–";
  }
}

let following = null;
let running = false; // whether values arrive
let anew = false; // whether the next value is the first of another series
let equation = null;
let centre = 0; // the mean of a long run, which was taken from the series that the model was trained on

function beginSeries() {
  const long = MackeyGlass.random();
  long.run(WASHOUT);
  centre = long.run(5000).reduce((sum, value) => sum + value, 0) / 5000;
  equation = MackeyGlass.random();
  equation.run(WASHOUT);
}

// Let values arrive for as long as the page is open; there is one loop, so that calls of the model never overlap.
async function follow() {
  let due = 0;
  for (let then = performance.now(); ; ) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    if (running) due = Math.min(due + (controls.values.rate * (now - then)) / 1000, 32); // no rush after a pause
    then = now;
    if (anew) {
      following.reset();
      beginSeries();
      anew = false;
    }
    const count = Math.floor(due);
    due -= count;
    if (!count) continue;
    await following.push(equation.run(count).map((value) => value - centre));
    following.draw();
  }
}

async function begin() {
  byId("start").disabled = true;
  byId("said").textContent = "Loading the model.";
  following = await Following.begin();
  byId("said").textContent = "";
  for (const name of ["start", "jolt", "again"]) byId(name).disabled = false;
  await follow();
}

function fail(error) {
  for (const name of ["start", "jolt", "again"]) byId(name).disabled = true;
  byId("said").textContent = `This did not work: ${error.message}`;
}

beginSeries();
const controls = new Controls(byId("controls"), TABLE, byId("note"), () => {});
byId("start").addEventListener("click", () => {
  running = !running;
  byId("start").textContent = running ? "Pause" : "Go on";
  if (!following) begin().catch(fail);
});
byId("jolt").addEventListener("click", () => (equation.x += JOLT));
byId("again").addEventListener("click", () => (anew = true));
plot.draw({ x: [0, WINDOW], y: [-0.75, 0.55], words: "No values yet." });
