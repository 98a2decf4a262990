// Keys of single letters that press a button of the page.

/** The keys with what they do. A button has its key as `data-key`. */
export const ACTION_KEYS: readonly [key: string, action: string][] = [
  ["n", "Begin a new session"],
  [".", "Stop the run"],
  ["e", "Edit the last message, in a copy of the session"],
  ["r", "Repeat the last message, in a copy of the session"],
  ["f", "Fork the session after the open event"],
  ["y", "Agree to the call in whose card the focus is"],
  ["x", "Deny the call in whose card the focus is"],
];

/** Returns whether the page handles Escape, rather than an open dialog, an input method or a panel. */
export function isEscape({ key, target, defaultPrevented, isComposing }: KeyboardEvent): boolean {
  return key === "Escape" && !defaultPrevented && !isComposing && !(target as Element | null)?.closest?.("dialog");
}

/** Returns the last button with a key. Buttons in a `data-key-scope` count only if the scope has the focus. */
export function buttonOfKey(root: ParentNode, key: string, focused: Element | null): HTMLElement | undefined {
  if (!ACTION_KEYS.some(([known]) => known === key)) return undefined;
  const buttons = [...root.querySelectorAll<HTMLElement>("[data-key]")].filter((button) => button.dataset.key === key);
  const isActive = (button: HTMLElement) => {
    const scope = button.closest("[data-key-scope]");
    return !button.matches(":disabled") && (!scope || scope.contains(focused));
  };
  return buttons.findLast(isActive);
}
