import { describe, expect, it } from "vitest";
import { decodePcm, encodePcm, loudness, rateOf, resample } from "../src/model/audio";
import { buildTurns } from "../src/model/conversation";
import { noActions } from "./events";

describe("audio", () => {
  it("is the same after encoding and decoding, apart from clipping", () => {
    const samples = decodePcm(encodePcm(Float32Array.from([0, 0.5, -0.5, 2, -2])));
    [0, 0.5, -0.5, 1, -1].forEach((expected, index) => expect(samples[index]).toBeCloseTo(expected, 3));
    expect(encodePcm(Float32Array.from([1]))).toBe("/38=");
    expect([...decodePcm("_38")]).toEqual([...decodePcm("/38=")]);
  });

  it("has another rate after resampling", () => {
    expect([...resample(Float32Array.from([1, 3, 5, 7, 9, 11]), 48_000, 16_000)]).toEqual([3, 9]);
    expect([...resample(Float32Array.from([0, 2]), 8_000, 16_000)]).toEqual([0, 1, 2, 2]);
    const same = Float32Array.from([1]);
    expect(resample(same, 16_000, 16_000)).toBe(same);
    expect(resample(new Float32Array(4410), 44_100, 16_000).length).toBe(1600);
  });

  it("has a rate from its media type, and a loudness", () => {
    expect([rateOf("audio/pcm;rate=16000"), rateOf("audio/pcm"), rateOf("audio/pcm;rate=7")]).toEqual([16_000, 24_000, 24_000]);
    expect([loudness(new Float32Array(4)), loudness(Float32Array.from([1, -1])), loudness(new Float32Array())]).toEqual([0, 1, 0]);
  });
});

describe("what was said", () => {
  const common = { invocationId: "e-1", timestamp: 1, actions: noActions };

  it("is shown as messages", () => {
    const turns = buildTurns([
      { ...common, id: "a", author: "dice", inputTranscription: { text: "Roll a die", finished: true } },
      { ...common, id: "b", author: "dice", outputTranscription: { text: "You rolled 4." } },
    ]);
    expect(turns.map((turn) => [turn.message?.content?.parts?.[0]?.text, turn.items.length])).toEqual([["Roll a die", 1]]);
    expect(turns[0]!.items[0]).toMatchObject({ kind: "text", text: "You rolled 4." });
  });
});
