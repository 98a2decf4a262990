// The open live conversation, if there is one.

import type { SessionKey } from "../../api/host";
import { describeError } from "../../api/http";
import { LiveConnection } from "../../api/live";
import type { Part, SessionEvent } from "../../api/types";
import { INPUT_RATE } from "../../model/audio";
import { chat } from "./chat.svelte";
import { Microphone, Speaker } from "./microphone";

const NORMAL_END = 1000;

class Live {
  state = $state<"off" | "connecting" | "on">("off");
  /** Whether a turn is being answered. */
  isAnswering = $state(false);
  /** How loud the microphone is, from 0 to 1; `undefined` while it is off. */
  level = $state<number>();
  /** Whether the person is asked for the microphone. */
  isAsking = $state(false);
  problem = $state("");
  #connection: LiveConnection | undefined;
  #microphone: Microphone | undefined;
  #speaker: Speaker | undefined;

  get isOn(): boolean {
    return this.state === "on";
  }

  /** Starts in the open session, or in a new one, whose key is passed to `onCreate`. */
  async begin(app: string, user: string, onCreate: (key: SessionKey) => void): Promise<void> {
    if (!chat.key) {
      this.problem = "";
      try {
        onCreate(await chat.create(app, user, "Live conversation"));
      } catch (error) {
        this.problem = `The live conversation cannot begin: ${describeError(error)}`;
        return;
      }
      chat.isCreating = false;
    }
    if (chat.key) this.start(chat.key);
  }

  start(key: SessionKey): void {
    if (this.state !== "off") return;
    [this.state, this.problem] = ["connecting", ""];
    this.#speaker = new Speaker();
    const connection = new LiveConnection(key, {
      onOpen: () => (this.state = "on"),
      onEvent: (event) => this.#receive(event),
      onClose: (code, reason) => {
        if (this.#connection !== connection) return;
        if (code !== NORMAL_END) this.problem = reason || `The connection ended (${code}).`;
        this.#end();
        void chat.reconcile();
      },
    });
    this.#connection = connection;
  }

  stop(): void {
    this.problem = "";
    if (this.state === "off") return;
    const connection = this.#connection;
    this.#end();
    connection?.close();
    void chat.reconcile();
  }

  #end(): void {
    this.#microphone?.close();
    this.#speaker?.close();
    [this.#connection, this.#microphone, this.#speaker] = [undefined, undefined, undefined];
    [this.state, this.isAnswering, this.isAsking, this.level] = ["off", false, false, undefined];
  }

  send(parts: Part[]): void {
    this.isAnswering = true;
    chat.addLocal(parts);
    this.#connection?.sendContent(parts);
  }

  async toggleMicrophone(): Promise<void> {
    if (this.#microphone) {
      this.#microphone.close();
      [this.#microphone, this.level] = [undefined, undefined];
      this.#connection?.endAudio();
      return;
    }
    const connection = this.#connection;
    if (!connection || this.isAsking) return;
    this.isAsking = true;
    try {
      const microphone = await Microphone.open((data, level) => {
        if (!this.#microphone) return;
        this.level = level;
        connection.sendAudio(data, INPUT_RATE);
      });
      // The conversation may have ended while the person was asked.
      if (this.#connection !== connection) return microphone.close();
      [this.#microphone, this.level, this.problem] = [microphone, 0, ""];
    } catch (error) {
      if (this.#connection === connection) this.problem = `The microphone cannot be used: ${describeError(error)}`;
    } finally {
      if (this.#connection === connection) this.isAsking = false;
    }
  }

  #receive(event: SessionEvent): void {
    if (event.interrupted) this.#speaker?.interrupt();
    for (const { inlineData } of event.content?.parts ?? []) {
      if (inlineData?.mimeType?.startsWith("audio/")) this.#speaker?.play(inlineData.data, inlineData.mimeType);
    }
    chat.receive(event);
    if (event.turnComplete) {
      this.isAnswering = false;
      void chat.reconcile();
    }
  }
}

export const live = new Live();
