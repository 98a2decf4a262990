// The end of a login at an OAuth server, which sends the browser to this page. It may be in another tab than the
// conversation that waits for it.

import { isRedirect } from "../model/credential";

const CHANNEL = "hatchery-redirect";

/** Sends the address of this page to the open conversations if it is the end of a login. Returns whether it is. */
export function handOver(): boolean {
  if (!isRedirect(new URL(location.href))) return false;
  const channel = new BroadcastChannel(CHANNEL);
  channel.postMessage(location.href);
  channel.close();
  // Removes the code from the address bar and the history.
  history.replaceState(null, "", new URL("./", document.baseURI));
  return true;
}

/** Calls `take` with the addresses at which logins end. Returns a function that stops it. */
export function onRedirect(take: (url: string) => Promise<void>): () => void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = ({ data }: MessageEvent<unknown>) => {
    if (typeof data === "string") void take(data);
  };
  return () => channel.close();
}

/** Returns whether this tab may answer with an address: only the first of several tabs with the same conversation. */
export function claim(url: string): Promise<boolean> {
  // Browsers have locks only over HTTPS and on localhost.
  const locks = navigator.locks as LockManager | undefined;
  if (!locks) return Promise.resolve(true);
  return new Promise((resolve) => {
    void locks.request(url, { ifAvailable: true }, (lock) => {
      resolve(lock !== null);
      // Held until the tab is closed.
      return lock === null ? undefined : new Promise(() => {});
    });
  });
}
