// HTTP requests to the host, and its errors.

/** The folder above `/dev-ui/`, where the routes of the host are. */
const root = new URL("../", document.baseURI);

/** Returns the address of a route. */
export const rootUrl = (target: string) => new URL(target, root);

/** An error of the host, or a connection that failed (`code` is `OFFLINE`). */
export class HostError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    /** Seconds after which the host accepts the request again, from `Retry-After`. */
    readonly retryAfter?: number,
  ) {
    super(message);
  }

  get isOffline(): boolean {
    return this.code === "OFFLINE";
  }
}

/** Joins a path from its segments, which may contain any character. */
export function path(...segments: string[]): string {
  return segments.map(encodeURIComponent).join("/");
}

let reportUnauthorized: (message: string) => void = () => {};

/** Sets the function that is called when the host requires a login. */
export function onUnauthorized(report: (message: string) => void): void {
  reportUnauthorized = report;
}

export async function sendRequest(method: string, target: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const init: RequestInit = { method, signal };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "Content-Type": "application/json" };
  }
  let response: Response;
  try {
    response = await fetch(new URL(target, root), init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new HostError(0, "OFFLINE", "The host cannot be reached. Is it still running?");
  }
  if (!response.ok) {
    const error = await hostError(response);
    if (error.status === 401) reportUnauthorized(error.message);
    throw error;
  }
  return response;
}

export async function getJson<T>(target: string, signal?: AbortSignal): Promise<T> {
  return (await sendRequest("GET", target, undefined, signal)).json() as Promise<T>;
}

export async function sendJson<T>(method: string, target: string, body?: unknown): Promise<T | undefined> {
  const text = await (await sendRequest(method, target, body)).text();
  return text === "" ? undefined : (JSON.parse(text) as T);
}

/** Statuses of a proxy that cannot reach the host. Errors of the host itself are JSON. */
const GATEWAY_ERRORS = [502, 503, 504];

async function hostError(response: Response): Promise<HostError> {
  const { status, statusText } = response;
  const text = await response.text().catch(() => "");
  try {
    const problem = JSON.parse(text) as { code?: string; detail?: string };
    const retryAfter = Number(response.headers.get("Retry-After") ?? Number.NaN);
    return new HostError(status, problem.code ?? "ERROR", problem.detail ?? text, Number.isFinite(retryAfter) ? retryAfter : undefined);
  } catch {
    const answer = `${status} ${statusText}`.trim();
    if (GATEWAY_ERRORS.includes(status)) {
      return new HostError(status, "OFFLINE", `The host cannot be reached: a proxy in front of it answered ${answer}.`);
    }
    // The error page of a proxy is HTML.
    const isText = text !== "" && !/^\s*</.test(text);
    return new HostError(status, "ERROR", isText ? text : `The server answered ${answer}.`);
  }
}

/** The code and the message of an error for display. */
export interface ErrorReport {
  code: string;
  message: string;
}

export function reportError(error: unknown): ErrorReport {
  return { code: error instanceof HostError ? error.code : "ERROR", message: describeError(error) };
}

/** Returns the message of an error for display. */
export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
