/** Returns an id of the form that the host gives to runs. Browsers have `randomUUID` only over HTTPS and on loopback. */
export function newRunId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `e-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
