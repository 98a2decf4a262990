// Microphone input in chunks of samples for live models, and playback of their audio.

import { decodePcm, encodePcm, INPUT_RATE, loudness, rateOf, resample } from "../../model/audio";

export class Microphone {
  private constructor(
    readonly stream: MediaStream,
    readonly context: AudioContext,
  ) {}

  /**
   * Asks for the microphone and calls `onChunk` ten times a second.
   *
   * @throws if the person refuses, or the page was not loaded over HTTPS or from loopback.
   */
  static async open(onChunk: (data: string, loudness: number) => void): Promise<Microphone> {
    if (!navigator.mediaDevices) throw new Error("Browsers give the microphone only to pages over HTTPS or from localhost.");
    const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true } });
    const microphone = new Microphone(stream, new AudioContext());
    try {
      await microphone.#begin(onChunk);
    } catch (error) {
      microphone.close();
      throw error;
    }
    return microphone;
  }

  async #begin(onChunk: (data: string, loudness: number) => void): Promise<void> {
    const { stream, context } = this;
    await context.audioWorklet.addModule(new URL("capture.js", document.baseURI));
    const capture = new AudioWorkletNode(context, "capture");
    capture.port.onmessage = ({ data }: MessageEvent<Float32Array>) => {
      const samples = resample(data, context.sampleRate, INPUT_RATE);
      onChunk(encodePcm(samples), loudness(samples));
    };
    context.createMediaStreamSource(stream).connect(capture);
  }

  close(): void {
    for (const track of this.stream.getTracks()) track.stop();
    void this.context.close();
  }
}

/** Plays chunks one after the other. */
export class Speaker {
  #context = new AudioContext();
  #next = 0;
  #playing = new Set<AudioBufferSourceNode>();

  play(data: string, mimeType: string | undefined): void {
    const samples = decodePcm(data);
    if (samples.length === 0) return;
    const rate = rateOf(mimeType);
    const buffer = this.#context.createBuffer(1, samples.length, rate);
    buffer.copyToChannel(samples, 0);
    const source = this.#context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.#context.destination);
    this.#next = Math.max(this.#next, this.#context.currentTime);
    source.start(this.#next);
    this.#next += samples.length / rate;
    this.#playing.add(source);
    source.onended = () => this.#playing.delete(source);
  }

  /** Drops the chunks that are not played yet, as the person has begun to speak. */
  interrupt(): void {
    for (const source of this.#playing) source.stop();
    this.#playing.clear();
    this.#next = 0;
  }

  close(): void {
    this.interrupt();
    void this.#context.close();
  }
}
