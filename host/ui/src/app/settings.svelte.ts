// The settings of the person: the theme and the user id. Stored in the browser.

export type Theme = "auto" | "light" | "dark";

const THEMES: readonly Theme[] = ["auto", "light", "dark"];

function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function store(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // If the browser stores nothing, the value is lost when the page is closed.
  }
}

class Settings {
  theme = $state<Theme>(THEMES.find((theme) => theme === stored("hatchery-theme")) ?? "auto");
  user = $state(stored("hatchery-user") ?? "me");

  constructor() {
    this.#apply();
  }

  nextTheme(): void {
    this.theme = THEMES[(THEMES.indexOf(this.theme) + 1) % THEMES.length] ?? "auto";
    store("hatchery-theme", this.theme);
    this.#apply();
  }

  setUser(user: string): void {
    this.user = user;
    store("hatchery-user", user);
  }

  #apply(): void {
    const root = document.documentElement;
    if (this.theme === "auto") root.removeAttribute("data-theme");
    else root.dataset.theme = this.theme;
  }
}

export const settings = new Settings();

/** Whether the host lets the page change anything. */
export const canChange = document.querySelector<HTMLMetaElement>('meta[name="hatchery-mode"]')?.content !== "read";
