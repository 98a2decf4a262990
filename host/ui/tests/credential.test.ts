import { describe, expect, it } from "vitest";
import type { Json, JsonObject, Part, SessionEvent } from "../src/api/types";
import { buildTurns, type ItemOf, openCredentials } from "../src/model/conversation";
import { answerWithoutSecrets, credentialAnswer, credentialForm, endsLogin, isRedirect } from "../src/model/credential";
import { summarize } from "../src/model/event-summary";
import { noActions } from "./events";

const PAGE = "http://localhost:8080/dev-ui/";
const LOGIN = "https://login.example/authorize?client_id=hatchery&state=s1";

function request(authScheme: JsonObject, exchangedAuthCredential: JsonObject = {}) {
  const authConfig = { authScheme, credentialKey: "k", exchangedAuthCredential };
  return { id: "q1", name: "adk_request_credential", args: { functionCallId: "c1", authConfig } };
}

const apiKey = () => request({ type: "apiKey", in: "header", name: "X-Api-Key" }, { authType: "apiKey" });
const http = (scheme: string) => request({ type: "http", scheme }, { authType: "http", http: { scheme } });
const login = (oauth2: JsonObject) => request({ type: "oauth2", flows: {} }, { authType: "oauth2", oauth2 });

/** Returns the response to a request. */
function answer(call: ReturnType<typeof request>, value?: string, password?: string): JsonObject {
  const form = credentialForm(call, PAGE);
  const [part] = credentialAnswer(call, form, value === undefined ? undefined : { value, password });
  expect(part?.functionResponse).toMatchObject({ id: "q1", name: "adk_request_credential" });
  return part?.functionResponse?.response as JsonObject;
}

const credential = (...args: Parameters<typeof answer>): Json | undefined => answer(...args).exchangedAuthCredential;

describe("the form of a request", () => {
  it("asks for what the service expects", () => {
    expect(credentialForm(apiKey(), PAGE)).toEqual({ kind: "apiKey", location: "header", name: "X-Api-Key" });
    expect([http("Basic"), http("bearer")].map((call) => credentialForm(call, PAGE).kind)).toEqual(["basic", "token"]);
  });

  it("has the URL of a login, which ends in the page unless the request has a redirect URI", () => {
    const form = credentialForm(login({ authUri: LOGIN, state: "s1" }), PAGE);
    if (form.kind !== "login") throw new Error(form.kind);
    expect(new URL(form.url).searchParams.getAll("redirect_uri")).toEqual([PAGE]);
    const own = "https://app.example/callback";
    const configured = login({ authUri: `${LOGIN}&redirect_uri=${encodeURIComponent(own)}`, state: "s1", redirectUri: own });
    const other = credentialForm(configured, PAGE);
    if (other.kind !== "login") throw new Error(other.kind);
    expect([other.redirectUri, ...new URL(other.url).searchParams.getAll("redirect_uri")]).toEqual([own, own]);
  });

  it("has no link for URLs that run code or for unknown schemes", () => {
    const strange = [login({ authUri: "javascript:alert(1)" }), login({ authUri: "x" }), login({}), request({ type: "mutualTLS" })];
    expect(strange.map((call) => credentialForm(call, PAGE).kind)).toEqual(Array(4).fill("unknown"));
    expect(credentialForm({ name: "adk_request_credential" }, PAGE)).toEqual({ kind: "unknown" });
  });
});

describe("an answer", () => {
  it("is the configuration with the credential", () => {
    expect(answer(apiKey(), "k3y")).toEqual({
      authScheme: { type: "apiKey", in: "header", name: "X-Api-Key" },
      credentialKey: "k",
      exchangedAuthCredential: { authType: "apiKey", apiKey: "k3y" },
    });
    const basic = { scheme: "basic", credentials: { username: "ada", password: "p4ss" } };
    expect(credential(http("basic"), "ada", "p4ss")).toEqual({ authType: "http", http: basic });
    const bearer = { scheme: "bearer", credentials: { token: "t" } };
    expect(credential(http("bearer"), "t")).toEqual({ authType: "http", http: bearer });
  });

  it("has the URL or the code of a login, and its redirect URI", () => {
    const oauth2 = { clientId: "hatchery", authUri: LOGIN, state: "s1" };
    const url = `${PAGE}?code=c&state=s1`;
    const answered = { ...oauth2, redirectUri: PAGE };
    expect(credential(login(oauth2), url)).toEqual({ authType: "oauth2", oauth2: { ...answered, authResponseUri: url } });
    expect(credential(login(oauth2), "4/0A:c")).toEqual({ authType: "oauth2", oauth2: { ...answered, authCode: "4/0A:c" } });
  });

  it("declines without a credential", () => {
    expect(credential(apiKey())).toEqual({ authType: "apiKey" });
    expect(credential(login({ authUri: LOGIN, state: "s1" }))).toEqual({ authType: "oauth2", oauth2: { authUri: LOGIN, state: "s1" } });
  });

  it("is shown without its secrets", () => {
    const shown = (isGiven: boolean) => answerWithoutSecrets(apiKey(), isGiven)[0]?.functionResponse;
    expect(shown(true)).toEqual({ id: "q1", name: "adk_request_credential", response: { status: "received" } });
    expect(shown(false)?.response).toEqual({ status: "declined" });
  });
});

describe("the end of a login", () => {
  it("has a state with a code or an error", () => {
    const ends = ["?code=c&state=s", "?error=access_denied&state=s", "?code=c", "?app=dice&session=s", ""];
    expect(ends.map((query) => isRedirect(new URL(PAGE + query)))).toEqual([true, true, false, false, false]);
  });

  it("belongs to the request with its state", () => {
    const form = credentialForm(login({ authUri: LOGIN, state: "s1" }), PAGE);
    expect(["?code=c&state=s1", "?code=c&state=s2"].map((query) => endsLogin(PAGE + query, form))).toEqual([true, false]);
    expect(endsLogin("no URL", form)).toBe(false);
    const stateless = credentialForm(login({ authUri: LOGIN }), PAGE);
    expect(endsLogin(`${PAGE}?code=c&state=`, stateless)).toBe(false);
  });
});

describe("a request in a conversation", () => {
  let time = 0;

  function event(author: string, parts: Part[], more: Partial<SessionEvent> = {}): SessionEvent {
    time += 1;
    return { id: `event-${time}`, invocationId: "e-1", author, timestamp: time, content: { parts }, actions: noActions, ...more };
  }

  const asked = event("clerk", [{ functionCall: { id: "c1", name: "list_orders" } }]);
  const asking = event("clerk", [{ functionCall: apiKey() }], { longRunningToolIds: ["q1"] });
  const result = (response: JsonObject) => event("clerk", [{ functionResponse: { id: "c1", name: "list_orders", response } }]);
  const events = [event("user", [{ text: "orders?" }]), asked, asking, result({ pending: true })];
  const answered = (response: JsonObject) => event("user", [{ functionResponse: { id: "q1", name: "adk_request_credential", response } }]);

  function items(more: SessionEvent[]): [ItemOf<"tool">, ItemOf<"credential">] {
    const [tool, credential] = buildTurns([...events, ...more])[0]?.items ?? [];
    if (tool?.kind !== "tool" || credential?.kind !== "credential") throw new Error(`${tool?.kind}, ${credential?.kind}`);
    return [tool, credential];
  }

  it("names the tool that waits", () => {
    const [tool, credential] = items([]);
    expect([credential.requester, credential.state, tool.asksFor]).toEqual(["list_orders", "open", "credential"]);
    const [alone] = buildTurns([asking])[0]?.items ?? [];
    expect(alone).toMatchObject({ kind: "credential", requester: "clerk" });
  });

  it("waits for a person until it is answered", () => {
    const waiting = (...more: SessionEvent[]) => openCredentials(buildTurns([...events, ...more])).map(({ requester }) => requester);
    expect(waiting()).toEqual(["list_orders"]);
    expect(waiting(answered({ status: "declined" }))).toEqual([]);
  });

  it("shows its outcome", () => {
    const states = ["received", "declined", "ignored"].map((status) => items([answered({ status })])[1].state);
    expect(states).toEqual(["given", "declined", "superseded"]);
    expect(items([event("user", [{ text: "never mind" }])])[1].state).toBe("superseded");
  });

  it("ends with the result of the call", () => {
    const [tool] = items([answered({ status: "received" }), result({ orders: 2 })]);
    expect(tool).toMatchObject({ asksFor: undefined, response: { orders: 2 } });
  });

  it("is an ordinary call if a model has made it", () => {
    const made = event("clerk", [{ functionCall: apiKey() }]);
    expect(buildTurns([made])[0]?.items[0]?.kind).toBe("tool");
  });

  it("has a line in the list of events", () => {
    expect(summarize(asking)).toMatchObject({ kind: "credential", text: expect.stringContaining("X-Api-Key") });
  });
});
