"use strict";

// The page of the listener: a word is heard in chunks, and the probabilities are drawn after each.

const CLIPS = ["yes", "no", "on", "stop", "left", "right"];
const CHUNK = 250; // steps of the model in a call: an eighth of a second
const LOUD = 1500; // of 32768; a word begins
const PATIENCE = 10; // seconds
const STYLES = ["first", "second", "third"];

const byId = (id) => document.getElementById(id);
const figures = {
  sound: new Plot(byId("sound"), { x: "seconds", y: "16-bit amplitude" }),
  words: new Plot(byId("words"), { x: "seconds", y: "probability" }),
};

let opened = null;
const openListener = () => (opened ??= StreamingSession.open("listener"));

// What is heard of one word. `probabilities` has those of all words after each step.
class Hearing {
  probabilities = [];
  #inputs = [];
  #sound = [];

  constructor(session, rate) {
    session.reset();
    this.session = session;
    this.steps = session.about.rate / session.about.every; // in a second
    this.averages = new Averages((session.about.every * rate) / session.about.rate);
  }

  get seconds() {
    return this.#sound.length / this.steps;
  }

  // Hear samples; at the end, also what does not fill a chunk.
  async hear(samples, end = false) {
    const means = this.averages.push(samples);
    this.#sound.push(...means);
    this.#inputs.push(...means.map((mean) => mean / this.session.about.scale));
    while (this.#inputs.length >= CHUNK || (end && this.#inputs.length)) {
      const logits = await this.session.push(Float32Array.from(this.#inputs.splice(0, CHUNK)));
      const count = this.session.about.words.length;
      for (let i = 0; i < logits.length; i += count) this.probabilities.push(softmax(logits.subarray(i, i + count)));
      this.#draw();
      await new Promise(requestAnimationFrame);
    }
  }

  #draw() {
    const { words } = this.session.about;
    const step = 1 / this.steps;
    const x = [0, Math.max(1, this.seconds)];
    figures.sound.draw({
      x,
      y: rangeOf(this.#sound, [-1000, 1000]),
      curves: [{ name: "first", x: [0, step], y: this.#sound }],
      words: `${this.seconds.toFixed(2)} seconds of sound.`,
    });
    const last = this.probabilities.at(-1);
    const order = [...words.keys()].sort((i, j) => last[j] - last[i]);
    figures.words.draw({
      x,
      y: [0, 1],
      // The likeliest words last, so that they are drawn over the others.
      curves: order.toReversed().map((i) => ({
        name: STYLES[order.indexOf(i)] ?? "soft-curve",
        x: [step, step],
        y: this.probabilities.map((all) => all[i]),
      })),
      words: `After ${this.seconds.toFixed(2)} seconds: ${words[order[0]]}, ${percent(last[order[0]])}.`,
    });
    order.forEach((i, rank) => showWord(rank, words[i], last[i]));
  }
}

function softmax(logits) {
  const largest = Math.max(...logits);
  const powers = Array.from(logits, (logit) => Math.exp(logit - largest));
  const sum = powers.reduce((total, power) => total + power);
  return powers.map((power) => power / sum);
}

const percent = (probability) => `${Math.round(100 * probability)} %`;

// Show a word in its place of the ranking.
function showWord(rank, word, probability) {
  const row = byId("ranking").rows[rank] ?? byId("ranking").insertRow();
  if (!row.cells.length) {
    const sample = svgElement("svg", { "aria-hidden": "true", class: "sample" });
    sample.append(svgElement("path", { class: `curve ${STYLES[rank] ?? "soft-curve"}`, d: "M0 5h32" }));
    row.append(htmlElement("td", {}, sample), htmlElement("th", { scope: "row" }));
    row.append(htmlElement("td", { className: "number" }), htmlElement("td", {}, htmlElement("div", { className: "bar" })));
  }
  row.cells[1].textContent = word;
  row.cells[2].textContent = percent(probability);
  row.cells[3].firstChild.style.width = `${8 * probability}rem`;
}

// Return what to say about an answer.
function answer(hearing, spoken) {
  const last = hearing.probabilities.at(-1);
  const best = last.indexOf(Math.max(...last));
  const heard = `The listener hears “${hearing.session.about.words[best]}” (${percent(last[best])}).`;
  return spoken ? `${heard} The word is “${spoken}”.` : heard;
}

async function hearClip(word) {
  say("Loading the model.");
  const session = await openListener();
  const bytes = await unpacked(`clips/${word}.wav`);
  const sound = new Audio(URL.createObjectURL(new Blob([bytes], { type: "audio/wav" })));
  sound.play().catch(() => say("This browser plays no sound.")); // it can be heard by the model all the same
  say(`Hearing “${word}”.`);
  const hearing = new Hearing(session, session.about.rate);
  const samples = wavSamples(bytes);
  for (let i = 0; i < samples.length; i += 2000) await hearing.hear(samples.subarray(i, i + 2000));
  await hearing.hear([], true);
  say(answer(hearing, word));
  return hearing;
}

// Wait until a word begins, and hear the second from there.
async function hearMicrophone() {
  say("Loading the model.");
  const session = await openListener();
  const microphone = await Microphone.open();
  try {
    say(`Speak one of these words: ${session.about.words.join(", ")}.`);
    const hearing = new Hearing(session, microphone.rate);
    let before = new Float32Array(0);
    for (let waited = 0; ; waited += before.length / microphone.rate) {
      const samples = await microphone.samples();
      const begins = samples.findIndex((sample) => Math.abs(sample) > LOUD);
      if (begins >= 0) {
        await hearing.hear([...before, ...samples]);
        break;
      }
      if (waited > PATIENCE) return say(`Nothing was loud enough to be a word for ${PATIENCE} seconds.`);
      before = samples;
    }
    say("Hearing a word.");
    while (hearing.seconds < 1) await hearing.hear(await microphone.samples());
    await hearing.hear([], true);
    say(answer(hearing));
    return hearing;
  } finally {
    await microphone.close();
  }
}

function say(text) {
  byId("said").textContent = text;
}

// Run something that is heard; buttons rest meanwhile.
async function run(task) {
  const buttons = document.querySelectorAll("button");
  for (const button of buttons) button.disabled = true;
  try {
    window.heard = await task();
  } catch (error) {
    say(`This did not work: ${error.message}`);
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

for (const word of CLIPS) {
  const button = htmlElement("button", { type: "button", textContent: `“${word}”` });
  button.addEventListener("click", () => run(() => hearClip(word)));
  byId("clips").append(button);
}
byId("microphone").addEventListener("click", () => run(hearMicrophone));
figures.sound.draw({ x: [0, 1], y: [-5000, 5000], words: "No sound yet." });
figures.words.draw({ x: [0, 1], y: [0, 1], words: "No probabilities yet." });
