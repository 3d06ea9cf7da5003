"use strict";

// Sound for the listener: recordings, and a microphone.

// Return the samples of a WAV file with 16 bits and one channel, as numbers from -32768 to 32767.
function wavSamples(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let place = 12;
  while (view.getUint32(place) !== 0x64617461) place += 8 + view.getUint32(place + 4, true); // until "data"
  const length = view.getUint32(place + 4, true) / 2;
  return Float32Array.from({ length }, (_, i) => view.getInt16(place + 8 + 2 * i, true));
}

// Means over stretches of `width` samples, which need not be a whole number.
class Averages {
  #sum = 0;
  #filled = 0;

  constructor(width) {
    this.width = width;
  }

  // Return the means that are complete after some more samples.
  push(samples) {
    const means = [];
    for (const sample of samples) {
      const share = Math.min(1, this.width - this.#filled);
      this.#sum += share * sample;
      this.#filled += share;
      if (this.#filled < this.width - 1e-9) continue;
      means.push(this.#sum / this.width);
      this.#sum = (1 - share) * sample;
      this.#filled = 1 - share;
    }
    return means;
  }
}

// What runs beside the page and hands over every 1024 samples or so.
const COLLECTOR = `
registerProcessor("collector", class extends AudioWorkletProcessor {
  parts = [];
  process([[samples]]) {
    if (samples) this.parts.push(...samples);
    if (this.parts.length >= 1024) this.port.postMessage(Float32Array.from(this.parts.splice(0)));
    return true;
  }
});`;

// A microphone that is open: `rate`, and `samples()`, a promise of the next ones. Nothing is kept or sent anywhere.
class Microphone {
  #arrived = [];
  #waiting = null;

  static async open() {
    if (!navigator.mediaDevices) throw new Error("this browser gives no microphone to pages without a server");
    const wanted = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    const microphone = new Microphone();
    microphone.stream = await navigator.mediaDevices.getUserMedia({ audio: wanted });
    microphone.context = new AudioContext();
    microphone.rate = microphone.context.sampleRate;
    await microphone.context.audioWorklet.addModule(`data:text/javascript,${encodeURIComponent(COLLECTOR)}`);
    const collector = new AudioWorkletNode(microphone.context, "collector", { numberOfOutputs: 0, channelCount: 1,
                                                                               channelCountMode: "explicit" });
    collector.port.onmessage = ({ data }) => microphone.#take(data.map((value) => 32768 * value));
    microphone.context.createMediaStreamSource(microphone.stream).connect(collector);
    return microphone;
  }

  // Return all samples that have arrived since the last call, once there are any.
  async samples() {
    if (!this.#arrived.length) await new Promise((done) => (this.#waiting = done));
    return Float32Array.from(this.#arrived.splice(0).flatMap((part) => [...part]));
  }

  close() {
    for (const track of this.stream.getTracks()) track.stop();
    return this.context.close();
  }

  #take(samples) {
    this.#arrived.push(samples);
    this.#waiting?.();
    this.#waiting = null;
  }
}
