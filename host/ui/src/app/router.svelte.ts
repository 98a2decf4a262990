// The current route, synchronised with the address bar.

import { formatRoute, parseRoute, type Route } from "../model/route";

const base = new URL("./", document.baseURI);

function currentRoute(): Route {
  return parseRoute(location.pathname.slice(base.pathname.length), new URLSearchParams(location.search));
}

class Router {
  route = $state.raw<Route>(currentRoute());

  constructor() {
    addEventListener("popstate", () => (this.route = currentRoute()));
  }

  /** Opens a route. `replace` replaces the current entry of the history. */
  open(route: Route, replace = false): void {
    const url = new URL(formatRoute(route), base);
    if (url.href === location.href) return;
    if (replace) history.replaceState(null, "", url);
    else history.pushState(null, "", url);
    this.route = route;
  }

  /** Opens a route when `work` has ended, unless the person has opened another one meanwhile. */
  async openAfter(work: Promise<unknown>, route: Route): Promise<void> {
    const before = this.route;
    await work;
    if (this.route === before) this.open(route, true);
  }
}

export const router = new Router();

/** Returns the address of a route for a link. */
export function href(route: Route): string {
  return new URL(formatRoute(route), base).pathname + new URL(formatRoute(route), base).search;
}

/** Opens links of the page without loading it again. */
export function followLinks(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link || link.target || link.origin !== location.origin || !link.pathname.startsWith(base.pathname)) return;
  if (link.hasAttribute("download")) return;
  event.preventDefault();
  const route = parseRoute(link.pathname.slice(base.pathname.length), new URLSearchParams(link.search));
  router.open(route);
}
