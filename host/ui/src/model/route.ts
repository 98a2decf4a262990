// The routes of the page and their addresses below `/dev-ui/`.

import { RUN_STATES, type RunState } from "./runs";

export type SessionTab = "events" | "state" | "artifacts";

export type Route =
  | { page: "chat"; app?: string; user?: string; session?: string }
  | { page: "runs"; app?: string; user?: string; state?: RunState; q?: string }
  | { page: "run"; app: string; user: string; session: string; run: string; span?: string }
  | ({ page: "compare"; app: string; user: string } & RunPair)
  | { page: "sessions"; app?: string; user?: string }
  | { page: "session"; app: string; user: string; session: string; tab: SessionTab }
  | { page: "components" }
  | { page: "component"; name: string }
  | { page: "agents"; app?: string }
  | { page: "usage"; app?: string; user?: string }
  | { page: "evals"; app?: string; set?: string; result?: string }
  | { page: "build"; app?: string }
  | { page: "settings" }
  | { page: "missing"; path: string };

/** Two runs of a user with an app. */
export interface RunPair {
  session: string;
  run: string;
  otherSession: string;
  otherRun: string;
}

const TABS: readonly SessionTab[] = ["events", "state", "artifacts"];

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Parses a path below `/dev-ui/`. Also understands the links of ADK's web client, `?app=…&userId=…&session=…`. */
export function parseRoute(path: string, query: URLSearchParams): Route {
  const [page, ...rest] = path.split("/").filter((segment) => segment !== "").map(decode);
  const get = (name: string) => query.get(name) ?? undefined;
  const [first, users, user, sessions, session, last] = rest;
  const isSession = users === "users" && sessions === "sessions";
  switch (page) {
    case undefined:
      return { page: "chat", app: get("app"), user: get("userId"), session: get("session") };
    case "apps":
      if (first !== undefined && rest.length === 1) return { page: "chat", app: first };
      if (first !== undefined && rest.length === 3 && users === "users") return { page: "chat", app: first, user };
      if (first !== undefined && rest.length === 5 && isSession) return { page: "chat", app: first, user, session };
      break;
    case "sessions":
      if (rest.length === 0) return { page: "sessions", app: get("app"), user: get("user") };
      if (first !== undefined && user !== undefined && session !== undefined && isSession && rest.length <= 6) {
        const tab = TABS.find((tab) => tab === last);
        if (tab || last === undefined) return { page: "session", app: first, user, session, tab: tab ?? "events" };
      }
      break;
    case "runs":
      if (rest.length === 0) {
        const [state, q] = [RUN_STATES.find((state) => state === get("state")), get("q")];
        return { page: "runs", app: get("app"), user: get("user"), ...(state && { state }), ...(q && { q }) };
      }
      if (first !== undefined && user !== undefined && session !== undefined && last !== undefined && isSession) {
        const span = get("span");
        return { page: "run", app: first, user, session, run: last, ...(span === undefined ? {} : { span }) };
      }
      break;
    case "compare": {
      const [app, user, session, run, otherSession, otherRun] = ["app", "user", "session", "run", "otherSession", "otherRun"].map(get);
      if (app && user && session && run && otherSession && otherRun) return { page, app, user, session, run, otherSession, otherRun };
      break;
    }
    case "settings":
      if (rest.length === 0) return { page };
      break;
    case "components":
      if (first === undefined) return { page: "components" };
      if (rest.length === 1) return { page: "component", name: first };
      break;
    case "agents":
      if (rest.length <= 1) return { page: "agents", app: first };
      break;
    case "usage":
      if (rest.length === 0) return { page: "usage", app: get("app"), user: get("user") };
      break;
    case "evals":
      if (rest.length <= 2) return { page: "evals", app: first, set: rest[1], result: get("result") };
      break;
    case "build":
      if (rest.length <= 1) return { page: "build", app: first };
      break;
  }
  return { page: "missing", path };
}

function segments(...parts: string[]): string {
  return parts.map(encodeURIComponent).join("/");
}

function withQuery(path: string, query: Record<string, string | undefined>): string {
  const pairs = Object.entries(query).filter((pair): pair is [string, string] => pair[1] !== undefined);
  return pairs.length === 0 ? path : `${path}?${new URLSearchParams(pairs)}`;
}

/** Returns the address of a route, relative to `/dev-ui/`. */
export function formatRoute(route: Route): string {
  switch (route.page) {
    case "chat":
      if (route.app === undefined) return "./";
      if (route.user === undefined) return segments("apps", route.app);
      if (route.session === undefined) return segments("apps", route.app, "users", route.user);
      return segments("apps", route.app, "users", route.user, "sessions", route.session);
    case "sessions":
      return withQuery("sessions", { app: route.app, user: route.user });
    case "session": {
      const path = segments("sessions", route.app, "users", route.user, "sessions", route.session);
      return route.tab === "events" ? path : `${path}/${route.tab}`;
    }
    case "runs":
      return withQuery("runs", { app: route.app, user: route.user, state: route.state, q: route.q });
    case "run":
      return withQuery(segments("runs", route.app, "users", route.user, "sessions", route.session, route.run), { span: route.span });
    case "compare": {
      const { page, ...query } = route;
      return withQuery(page, { ...query });
    }
    case "settings":
      return route.page;
    case "components":
      return "components";
    case "component":
      return segments("components", route.name);
    case "agents":
      return route.app === undefined ? "agents" : segments("agents", route.app);
    case "usage":
      return withQuery("usage", { app: route.app, user: route.user });
    case "evals": {
      const names = [route.app, route.set].filter((name) => name !== undefined);
      return withQuery(segments("evals", ...names), { result: route.result });
    }
    case "build":
      return route.app === undefined ? "build" : segments("build", route.app);
    case "missing":
      return route.path;
  }
}
