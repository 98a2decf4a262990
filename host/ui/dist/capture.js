// The microphone as samples: collects what arrives, and posts it ten times a second. Runs in the audio thread.
class Capture extends AudioWorkletProcessor {
  #samples = new Float32Array(Math.ceil(sampleRate / 10));
  #length = 0;

  process([input]) {
    const channel = input[0];
    if (!channel) return true;
    for (const sample of channel) {
      this.#samples[this.#length] = sample;
      this.#length += 1;
      if (this.#length === this.#samples.length) {
        this.port.postMessage(this.#samples.slice());
        this.#length = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
