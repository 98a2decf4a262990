// The routes of evaluations.

import { getJson, path, sendJson } from "./http";
import type { EvalCase, EvalResultIds, EvalSet, EvalSetIds, EvalSetResult } from "./types";

const setsPath = (app: string) => `dev/apps/${path(app)}/eval-sets`;
const setPath = (app: string, set: string) => `${setsPath(app)}/${path(set)}`;
const casePath = (app: string, set: string, id: string) => `${setPath(app, set)}/eval-cases/${path(id)}`;

export const listSets = async (app: string) => (await getJson<EvalSetIds>(setsPath(app))).evalSetIds;
export const readSet = (app: string, set: string) => getJson<EvalSet>(setPath(app, set));
export const createSet = (app: string, set: string) => sendJson("POST", setsPath(app), { evalSet: { evalSetId: set, evalCases: [] } });
export const deleteSet = (app: string, set: string) => sendJson("DELETE", setPath(app, set));
export const readCase = (app: string, set: string, id: string) => getJson<EvalCase>(casePath(app, set, id));
export const replaceCase = (app: string, set: string, id: string, evalCase: EvalCase) => sendJson("PUT", casePath(app, set, id), evalCase);
export const deleteCase = (app: string, set: string, id: string) => sendJson("DELETE", casePath(app, set, id));

export function addSession(app: string, set: string, evalId: string, userId: string, sessionId: string) {
  return sendJson("POST", `${setPath(app, set)}/add-session`, { evalId, userId, sessionId });
}

/** Evaluates the given cases, or all cases of the set if none are given. Waits for the result. */
export function runEval(app: string, set: string, evalIds: string[], numRuns: number): Promise<unknown> {
  return sendJson("POST", `${setPath(app, set)}/run`, { evalIds, numRuns });
}

/** Returns the ids of results, newest first. */
export async function listResults(app: string): Promise<string[]> {
  return (await getJson<EvalResultIds>(`dev/apps/${path(app)}/eval-results`)).evalResultIds.reverse();
}

export const readResult = (app: string, id: string) => getJson<EvalSetResult>(`dev/apps/${path(app)}/eval-results/${path(id)}`);
