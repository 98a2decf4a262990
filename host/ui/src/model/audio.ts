// Audio as bytes: 16-bit samples, little endian, one channel.

import { encodeBase64 } from "./files";

/** The sample rates of the input and the output of live models. */
export const INPUT_RATE = 16_000;
export const OUTPUT_RATE = 24_000;

/** Resamples audio. Each new sample is the mean of the samples that it replaces, or interpolated. */
export function resample(samples: Float32Array, from: number, to: number): Float32Array {
  if (from === to) return samples;
  const ratio = from / to;
  const result = new Float32Array(Math.floor(samples.length / ratio));
  for (let index = 0; index < result.length; index += 1) {
    const [start, end] = [index * ratio, (index + 1) * ratio];
    if (ratio > 1) {
      let [sum, count] = [0, 0];
      for (let at = Math.floor(start); at < Math.min(samples.length, Math.ceil(end)); at += 1) {
        sum += samples[at] ?? 0;
        count += 1;
      }
      result[index] = count === 0 ? 0 : sum / count;
    } else {
      const before = Math.floor(start);
      const part = start - before;
      const [one, other] = [samples[before] ?? 0, samples[before + 1] ?? samples[before] ?? 0];
      result[index] = one + (other - one) * part;
    }
  }
  return result;
}

/** Encodes samples from -1 to 1 as base64. */
export function encodePcm(samples: Float32Array): string {
  const view = new DataView(new ArrayBuffer(samples.length * 2));
  samples.forEach((sample, index) => {
    const clipped = Math.max(-1, Math.min(1, sample));
    view.setInt16(index * 2, Math.round(clipped * 0x7fff), true);
  });
  return encodeBase64(new Uint8Array(view.buffer));
}

/** Decodes samples from base64 in the standard or the URL-safe alphabet. */
export function decodePcm(data: string): Float32Array<ArrayBuffer> {
  const bytes = Uint8Array.from(atob(data.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: Math.floor(bytes.length / 2) }, (_, index) => view.getInt16(index * 2, true) / 0x8000);
}

/** Returns the loudness of samples from 0 to 1. */
export function loudness(samples: Float32Array): number {
  if (samples.length === 0) return 0;
  const mean = samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length;
  return Math.min(1, Math.sqrt(mean) * 3);
}

/** Returns the rate in a media type such as `audio/pcm;rate=24000`. */
export function rateOf(mimeType: string | undefined): number {
  const rate = Number(/rate=(\d+)/.exec(mimeType ?? "")?.[1]);
  return rate >= 3000 && rate <= 192_000 ? rate : OUTPUT_RATE;
}
