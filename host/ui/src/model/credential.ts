// Requests of tools for a credential of a person, and the answers to them, in the JSON of ADK.

import { asObject } from "../api/json";
import type { FunctionCall, Json, JsonObject, Part } from "../api/types";

export const CREDENTIAL = "adk_request_credential";

/** Whether a request waits for a person, and what the person did. */
export type CredentialState = "open" | "given" | "declined" | "superseded";

/** The credential that a person is asked for. */
export type CredentialForm =
  | { kind: "apiKey"; location: string; name: string }
  | { kind: "basic" }
  | { kind: "token" }
  | { kind: "login"; url: string; state: string; redirectUri: string }
  | { kind: "unknown" };

/** What a person enters: a key, a token, a user name, or the URL or the code after a login. */
export interface CredentialEntry {
  value: string;
  password?: string;
}

function asText(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

/** Returns the form for a request. `page` is the redirect URI of a login if the request has none. */
export function credentialForm(call: FunctionCall, page: string): CredentialForm {
  const { authScheme, exchangedAuthCredential } = asObject(call.args?.authConfig);
  const scheme = asObject(authScheme);
  switch (scheme.type) {
    case "apiKey":
      return { kind: "apiKey", location: asText(scheme.in), name: asText(scheme.name) };
    case "http":
      return { kind: asText(scheme.scheme).toLowerCase() === "basic" ? "basic" : "token" };
    case "oauth2":
    case "openIdConnect":
      return loginForm(asObject(asObject(exchangedAuthCredential).oauth2), page);
    default:
      return { kind: "unknown" };
  }
}

function loginForm(login: JsonObject, page: string): CredentialForm {
  const url = parseUrl(asText(login.authUri));
  // A link of another scheme, such as `javascript:`, would run in this page.
  if (!url || !["https:", "http:"].includes(url.protocol)) return { kind: "unknown" };
  const redirectUri = asText(login.redirectUri) || page;
  if (!url.searchParams.has("redirect_uri")) url.searchParams.set("redirect_uri", redirectUri);
  return { kind: "login", url: url.href, state: asText(login.state), redirectUri };
}

/** Returns the message that answers a request. Without an entry, it declines. */
export function credentialAnswer(call: FunctionCall, form: CredentialForm, entry?: CredentialEntry): Part[] {
  const config = asObject(call.args?.authConfig);
  const asked = asObject(config.exchangedAuthCredential);
  const response = { ...config, exchangedAuthCredential: { ...asked, ...(entry && credential(form, asked, entry)) } };
  return [{ functionResponse: { id: call.id, name: CREDENTIAL, response } }];
}

function credential(form: CredentialForm, asked: JsonObject, { value, password = "" }: CredentialEntry): JsonObject {
  const http = (credentials: JsonObject) => ({ authType: "http", http: { ...asObject(asked.http), credentials } });
  switch (form.kind) {
    case "apiKey":
      return { authType: "apiKey", apiKey: value };
    case "basic":
      return http({ username: value, password });
    case "token":
      return http({ token: value });
    case "login": {
      const parameter = isUrl(value) ? "authResponseUri" : "authCode";
      return { oauth2: { ...asObject(asked.oauth2), redirectUri: form.redirectUri, [parameter]: value } };
    }
    case "unknown":
      return {};
  }
}

function parseUrl(text: string): URL | undefined {
  return URL.canParse(text) ? new URL(text) : undefined;
}

/** Codes may have colons, so that they look like URLs without an authority. */
function isUrl(text: string): boolean {
  return text.includes("://") && URL.canParse(text);
}

/** Returns an answer without its secrets, as the host stores it, for display. */
export function answerWithoutSecrets(call: FunctionCall, isGiven: boolean): Part[] {
  const response = { status: isGiven ? "received" : "declined" };
  return [{ functionResponse: { id: call.id, name: CREDENTIAL, response } }];
}

/** Returns the state of a request after an answer. */
export function stateAfter({ status }: JsonObject): CredentialState {
  if (status === "declined") return "declined";
  return status === "ignored" ? "superseded" : "given";
}

/** Returns whether a URL is a redirect after a login: it has a state, and a code or an error. */
export function isRedirect({ searchParams }: URL): boolean {
  return searchParams.has("state") && (searchParams.has("code") || searchParams.has("error"));
}

/** Returns whether a URL is the end of this login. */
export function endsLogin(url: string, form: CredentialForm): boolean {
  return form.kind === "login" && form.state !== "" && parseUrl(url)?.searchParams.get("state") === form.state;
}
