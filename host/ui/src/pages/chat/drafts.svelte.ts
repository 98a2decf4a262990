// Messages that were written and not sent, by conversation. They outlive the page of the chat.

import type { Part } from "../../api/types";

export interface Draft {
  text: string;
  files: readonly Part[];
}

/** A conversation; without a session, the next one of this user with this app. */
export interface DraftKey {
  app: string;
  user: string;
  session?: string;
}

const EMPTY: Draft = { text: "", files: [] };

const isEmpty = ({ text, files }: Draft) => text === "" && files.length === 0;
const idOf = ({ app, user, session }: DraftKey) => JSON.stringify([app, user, session ?? null]);

class Drafts {
  #drafts = $state.raw<{ [id: string]: Draft }>({});

  get(key: DraftKey): Draft {
    return this.#drafts[idOf(key)] ?? EMPTY;
  }

  set(key: DraftKey, draft: Draft): void {
    const { [idOf(key)]: _, ...others } = this.#drafts;
    this.#drafts = isEmpty(draft) ? others : { ...others, [idOf(key)]: draft };
  }

  /** Returns the draft and removes it. */
  take(key: DraftKey): Draft {
    const draft = this.get(key);
    this.set(key, EMPTY);
    return draft;
  }

  /** Sets a draft again that could not be sent, unless a new one was begun meanwhile. */
  restore(key: DraftKey, draft: Draft): void {
    if (isEmpty(this.get(key))) this.set(key, draft);
  }
}

export const drafts = new Drafts();

/** Returns the content of a draft. */
export function partsOf({ text, files }: Draft): Part[] {
  return [...(text.trim() === "" ? [] : [{ text }]), ...files];
}

/** Returns a message as a draft. */
export function draftOf(parts: readonly Part[]): Draft {
  return {
    text: parts.map((part) => part.text ?? "").join(""),
    files: parts.filter((part) => part.text === undefined),
  };
}
