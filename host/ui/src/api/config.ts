// The settings of the host.

import { getJson } from "./http";
import type { Settings } from "./types";

export const readConfig = () => getJson<Settings>("config");
