"use strict";

// Exported models in the page: what delayssm.export.streaming_session is in Python.

const ARRAYS = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array };

let started = null;

// Return the runtime, which is started once. What it loads are Blobs: a page from disk may import no other module.
function runtime() {
  started ??= (async () => {
    await runScript("runtime/ort.wasm.min.js");
    const address = async (name, type) =>
      URL.createObjectURL(new Blob([await unpacked(`runtime/ort-wasm-simd-threaded.${name}`)], { type }));
    ort.env.wasm.numThreads = 1; // more need headers that only a server can send
    ort.env.wasm.wasmPaths = {
      mjs: await address("mjs", "text/javascript"),
      wasm: await address("wasm", "application/wasm"),
    };
    return ort;
  })();
  return started;
}

// One stream through an exported model.
//
//     const session = await StreamingSession.open("listener");
//     const y = await session.push(x);        // for chunks of any length; the stream goes on from call to call
//     session.reset();                        // begin again
class StreamingSession {
  #session;
  #state;

  static async open(name) {
    const { InferenceSession } = await runtime();
    const session = new StreamingSession();
    session.about = JSON.parse(new TextDecoder().decode(await unpacked(`models/${name}.json`)));
    session.#session = await InferenceSession.create(await unpacked(`models/${name}.onnx`));
    session.reset();
    return session;
  }

  reset() {
    this.#state = {};
    for (const { input, dtype, shape } of this.about.states) {
      const sizes = [1, ...shape.slice(1)];
      const zeros = new ARRAYS[dtype](sizes.reduce((product, size) => product * size, 1));
      this.#state[input] = new ort.Tensor(dtype, zeros, sizes);
    }
  }

  // Return the outputs for a chunk, time after time.
  async push(chunk) {
    const { input, output, states } = this.about;
    const features = input.shape[2];
    const x = new ort.Tensor(input.dtype, chunk, [1, chunk.length / features, features]);
    const found = await this.#session.run({ [input.name]: x, ...this.#state });
    for (const state of states) this.#state[state.input] = found[state.output];
    return found[output.name].data;
  }
}
