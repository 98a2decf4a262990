// Live runs: a conversation over a WebSocket.

import type { SessionKey } from "./host";
import { rootUrl } from "./http";
import type { Part, SessionEvent } from "./types";

export interface LiveHandlers {
  onOpen: () => void;
  onEvent: (event: SessionEvent) => void;
  /** Called once, with the message of the host if there is one. */
  onClose: (code: number, reason: string) => void;
}

export class LiveConnection {
  #socket: WebSocket;

  constructor(key: SessionKey, { onOpen, onEvent, onClose }: LiveHandlers) {
    const url = rootUrl("run_live");
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.search = new URLSearchParams({ app_name: key.app, user_id: key.user, session_id: key.session }).toString();
    this.#socket = new WebSocket(url);
    this.#socket.onopen = onOpen;
    this.#socket.onclose = ({ code, reason }) => onClose(code, reason);
    this.#socket.onmessage = ({ data }) => {
      const value = JSON.parse(String(data)) as SessionEvent & { error?: string };
      if (value.error === undefined) onEvent(value);
    };
  }

  #send(request: unknown): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(request));
  }

  sendContent(parts: Part[]): void {
    this.#send({ content: { role: "user", parts } });
  }

  sendAudio(data: string, rate: number): void {
    this.#send({ blob: { mimeType: `audio/pcm;rate=${rate}`, data } });
  }

  endAudio(): void {
    this.#send({ audioStreamEnd: true });
  }

  /** Ends the conversation now: a turn in progress is cancelled. */
  close(): void {
    this.#socket.close(1000);
  }
}
