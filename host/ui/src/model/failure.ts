// What to do about failures whose messages name no next step.

/** The host tells its clients no settings. These codes are about them. */
const ADVICE: { readonly [code: string]: string } = {
  DENIED: "The page of the component shows its grants, and the lines for hatchery.yaml that add missing ones.",
  MODEL_AUTH: "To find the missing setting, run hatchery doctor in the served folder.",
  MODEL_UNKNOWN: "To find the models that can be used, run hatchery doctor in the served folder.",
};

/** Returns the next step after a failure, or `undefined` if its message has one. */
export function adviceFor(code: string): string | undefined {
  return ADVICE[code];
}
